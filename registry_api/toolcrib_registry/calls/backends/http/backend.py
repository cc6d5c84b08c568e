"""Calls a tool's HTTP backend, within the guard, the deadline and the bounds."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from toolcrib.identity import Identity, Issuer
from toolcrib.resources.backends import ASSERTION_HEADER, Method
from toolcrib.resources.placing import ParameterPlace
from toolcrib.version import __version__
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.authenticating import REJECTED, Authenticating, Caller
from toolcrib_registry.calls.backends.http.placed import Filled, filled
from toolcrib_registry.calls.backends.http.response import judged
from toolcrib_registry.calls.backends.port import NO_EXCHANGE, Exchange, ToolAnswer
from toolcrib_registry.calls.backends.remedies import CLUSTER, Remedies
from toolcrib_registry.calls.backends.routes import (
    Asserts,
    judged_in_turn,
    place,
    translated,
    tried,
)
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import NoBackend
from toolcrib_registry.calls.oauth.tokens import Tokens
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.outbound.errors import OutboundError
from toolcrib_registry.outbound.guard import PolicySource
from toolcrib_registry.outbound.messages import OutboundRequest, OutboundResponse, Sender

_INVALID_TOKEN = re.compile(r'error="?invalid_token\b')
_TRACE_PARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TRACE_STATE = 512
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class HttpBackend:
    """Calls tools. Whether the caller may is decided before; the caller's own token never comes here.

    Args:
        outbound: the guarded client.
        credentials: what the operator pushed.
        policy: the same policy that `outbound` enforces.
        limits: bounds of a call.
        assertions: signs calls of backends that take assertions; None: nothing is signed.
        tokens: obtains access tokens; None: backends that take some are not called.
        issuers: by `iss`; those with an `exchange_url` exchange tokens of callers.
        large: turns of large answers.
        remedies: what to do about a host or Service that may not be called.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        outbound: Sender,
        credentials: CredentialStore,
        policy: PolicySource,
        limits: CallBounds | None = None,
        *,
        assertions: Asserts | None = None,
        tokens: Tokens | None = None,
        issuers: Mapping[str, Issuer] | None = None,
        large: LargeRequests | None = None,
        remedies: Remedies = CLUSTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbound = outbound
        self._auth = Authenticating(credentials, tokens, remedies, issuers or {})
        self._policy = policy
        self._limits = limits or CallBounds()
        self._large = LargeRequests() if large is None else large
        self._assertions = assertions
        self._remedies = remedies
        self._clock = clock

    async def call(
        self,
        tool: PublishedTool,
        arguments: CheckedArguments,
        request_id: str,
        caller: Identity,
        exchange: Exchange = NO_EXCHANGE,
    ) -> ToolAnswer:
        """What the tool's backend answers. Of `exchange` HTTP carries the trace's context alone.

        Raises:
            CallError: see `calls.errors`.
        """
        backend = tool.backend
        if backend is not None and backend.mcp is not None:
            raise NoBackend("the tool is one of an MCP server, and only plain HTTP is called here")
        if backend is None or (backend.url is None and backend.service_name is None):
            raise NoBackend("the tool has no backend to call")
        to = place(backend, tool.namespace, self._policy.current, self._remedies)
        made = filled(backend, to.path, arguments, limit=self._limits.url_bytes)
        path, sent = made.path, made.body
        again = tool.repeatable
        headers = _headers(made, request_id)
        if exchange.meta:
            headers |= _trace(exchange.meta)
        if again and backend.method in (Method.POST, Method.PATCH):
            # for our own second try. Never the request's id: callers choose that, and with another's id a backend
            # might answer what it answered the other
            headers["idempotency-key"] = secrets.token_hex(16)
        timeout = min(backend.timeout, self._limits.timeout)
        started = self._clock()
        asks = Caller(caller, exchange.token)
        credential = await self._auth.of(backend.auth, tool.namespace, to, timeout, asks)
        if made.headers and not made.headers.keys().isdisjoint({**headers, **credential.headers}):
            raise NoBackend("the tool's parameters name a header that the registry sends")
        headers |= made.headers
        signer, hidden = self._assertions if backend.asserted else None, [*credential.secrets]

        method = backend.method.value
        filled_headers = {name: made.headers.get(name) for name in _fillable(backend)}

        def request(seconds: float) -> OutboundRequest:
            """One try's, signed by itself: a backend takes an assertion once."""
            carried = {**headers, **credential.headers}
            if signer is not None:
                assertion = signer.made(tool.tool_id, caller, method, path, sent, filled_headers)
                hidden.append(assertion.rpartition(".")[2])
                carried[ASSERTION_HEADER] = assertion
            return OutboundRequest(
                target=to,
                method=method,
                path=path,
                headers=carried,
                body=sent,
                timeout=seconds,
                max_bytes=self._limits.answer_bytes,
                owner=tool.namespace,
            )

        async def answered() -> OutboundResponse:
            left = timeout - (self._clock() - started)
            try:
                return await tried(
                    lambda seconds: self._outbound.send(request(seconds)), left, self._clock, again=again
                )
            except OutboundError as error:
                raise translated(error) from error

        response = await answered()
        if response.status == 401 and credential.grant is not None:
            if self._auth.renewed(credential) and (again or _not_executed(response)):
                left = timeout - (self._clock() - started)
                credential = await self._auth.of(backend.auth, tool.namespace, to, left, asks)
                hidden += credential.secrets
                response = await answered()
            if response.status == 401:
                raise REJECTED.copy()
        judge = partial(
            judged,
            response,
            limits=self._limits,
            elapsed=self._clock() - started,
            secrets=tuple(hidden),
        )
        return await judged_in_turn(judge, len(response.body), caller, self._large)


def _fillable(backend: PublishedBackend) -> Iterator[str]:
    """The headers that arguments may fill, by lower-case names."""
    for each in backend.parameters or ():
        if each.place is ParameterPlace.HEADER:
            yield each.name.lower()


def _not_executed(response: OutboundResponse) -> bool:
    """Whether a 401 is of the token (RFC 6750, 3.1): some other 401 may come of a tool that has done its work."""
    challenge = response.headers.get("www-authenticate", "")
    return _INVALID_TOKEN.search(challenge) is not None


def _headers(made: Filled, request_id: str) -> dict[str, str]:
    headers = {
        "accept": "application/json, text/plain;q=0.9, */*;q=0.1",
        "user-agent": f"toolcrib/{__version__}",
    }
    if made.body is not None:
        headers["content-type"] = made.content_type
    if _REQUEST_ID.fullmatch(request_id):
        headers["x-request-id"] = request_id
    return headers


def _trace(meta: Mapping[str, Any]) -> dict[str, str]:
    """The context of a trace (W3C Trace Context) that the caller's client named."""
    parent, state = meta.get("traceparent"), meta.get("tracestate")
    if not isinstance(parent, str) or _TRACE_PARENT.fullmatch(parent) is None:
        return {}
    found = {"traceparent": parent}
    if isinstance(state, str) and len(state) <= _TRACE_STATE and state.isascii() and state.isprintable():
        found["tracestate"] = state
    return found
