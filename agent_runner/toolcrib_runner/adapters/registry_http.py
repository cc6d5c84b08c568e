"""The registry over HTTP: discovery, calls and the live stream, with the agent's bearer token.

The exchanges are those of `toolcrib-client`; what is asked and what answers mean to a run stands here.

**Where the token goes.** Calls go to the discovery URL plus the tool's endpoint, not to the `host:port` of the
listing: the address an agent was given works for that agent (behind an ingress, a port-forward, a sidecar), the
listed one need not; and an answer of the network must not choose to whom a bearer token is sent. Where the listed
address is wanted, name it in `call_hosts`. Redirects are not followed and proxy variables are ignored, for the
same reason.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from toolcrib.telemetry import logs, tracing
from toolcrib.version import __version__
from toolcrib_client import errors as client_errors
from toolcrib_client import exchange
from toolcrib_client.connection import Connection, Work
from toolcrib_client.exchange import Answer, Asked, Trail
from toolcrib_runner import answers, discovery, tokens
from toolcrib_runner.discovery import Discovered, DiscoveredTool
from toolcrib_runner.errors import RegistryAnswerInvalid, RegistryUnavailable, RunnerError, TokenUnavailable
from toolcrib_runner.tokens import TokenSource

T = TypeVar("T")


class RegistryHttp:
    """A `Registry` at `discovery_url`: the URL whose `GET` lists the tools.

    `timeout` bounds a request, `call_timeout` a tool call (the longest backend deadline is 5 minutes), both in
    seconds and as a whole. `ca_file` replaces the system's certificate authorities. `session`, `ID/TURN`, is what the
    decision log is told that the requests belong to.
    """

    def __init__(
        self,
        discovery_url: str,
        token: TokenSource | None,
        *,
        call_hosts: Collection[str] = (),
        ca_file: str | None = None,
        timeout: float = 10.0,
        call_timeout: float = 310.0,
        session: str | None = None,
    ) -> None:
        self._session = {} if session is None else {"x-toolcrib-session": session}
        self._connection = Connection(
            exchange.base_url(discovery_url, "the discovery URL"),
            None if token is None else _Told(token),
            ca_file=ca_file,
            user_agent=f"toolcrib-runner/{__version__}",
        )
        address = urlsplit(self._connection.url)
        self._scheme, self._host = address.scheme, address.hostname or ""
        self._token = token
        self._call_hosts = frozenset(call_hosts)
        self._timeout, self._call_timeout = timeout, call_timeout

    def discover(self, etag: str | None = None) -> Discovered | None:
        """`GET` the list, with If-None-Match where an ETag is known."""
        asked = Asked("GET", "/", reads=True, headers={"if-none-match": etag} if etag else {})
        answer = self._send(asked)
        if answer.status == 304:
            return None
        found = _read(
            lambda document: discovery.read(document, answer.headers.get("etag")),
            answer,
            "the discovery response is not JSON: check that the URL is a registry's address",
        )
        if self._token is not None and not found.authenticated:
            # This route answers a refused token with an empty list, not with 401.
            tokens.renew(self._token)
        return found

    def call(self, tool: DiscoveredTool, arguments: Mapping[str, Any]) -> Any:
        """`POST` the arguments to the tool's call route."""
        content = json.dumps(arguments, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        accept = {"accept": "application/json, text/plain, */*"}
        asked = Asked(
            "POST", tool.endpoint, reads=False, body=content, headers=accept, base=self._direct(tool)
        )
        answer = self._send(asked, self._call_timeout)
        if not 200 <= answer.status < 300:
            raise answers.of_call(tool.name, answer.status, answer.body, answer.headers.get("retry-after"))
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not answer.body:
            return None
        if kind == "application/json" or kind.endswith("+json"):
            try:
                return json.loads(answer.body)
            except (ValueError, RecursionError):
                raise RegistryAnswerInvalid(
                    f"{tool.name}: the response claims to be JSON but is not"
                ) from None
        return answer.body.decode("utf-8", errors="replace")

    def input_schemas(self, names: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        """`POST /v1/load`, in batches."""
        found: dict[str, dict[str, Any]] = {}
        for asked in exchange.loading(names):
            found.update(_read(discovery.read_schemas, self._send(asked), "the definitions are not JSON"))
        return found

    def names(self, ids: Sequence[str]) -> Mapping[str, str]:
        """`POST /v1/load`, in batches."""
        found: dict[str, str] = {}
        for asked in exchange.loading(ids):
            found.update(_read(discovery.read_names, self._send(asked), "the definitions are not JSON"))
        return found

    def is_idempotent(self, name: str) -> bool:
        """`POST /v1/load`, of one tool."""
        (asked,) = exchange.loading([name])
        hints = _read(discovery.read_annotations, self._send(asked), "the definitions are not JSON").get(
            name, {}
        )
        return hints.get("idempotentHint") is True or hints.get("readOnlyHint") is True

    def search(self, query: str, limit: int) -> Sequence[str]:
        """`POST /v1/search`."""
        # a model may write lone surrogates, which UTF-8 cannot carry
        asked = exchange.searching(query.encode("utf-8", "replace").decode(), limit=limit)
        return _read(discovery.read_hits, self._send(asked), "the search answer is not JSON")

    def unavailable(self, namespaces: Sequence[str]) -> Sequence[str]:
        """Ids of the agent's tools in these namespaces whose backends are down, by `POST /v1/search` without words.

        At most 32 namespaces. Tools that are down come last, and only the first 100 are answered.
        """
        asked = exchange.searching(None, limit=100, namespaces=namespaces)
        return _read(discovery.read_unavailable, self._send(asked), "the search answer is not JSON")

    @contextmanager
    def watch(self) -> Iterator[Iterator[str]]:
        """Open `/v1/watch` and yield its event names."""
        with (
            _translated(),
            self._connection.events(exchange.WATCH, self._work("watch-", self._timeout)) as source,
        ):
            if isinstance(source, Answer):
                raise answers.of_registry(source.status, source.body, source.headers.get("retry-after"))
            yield (event.event or "message" for event in source)

    def interrupt(self) -> None:
        """Shut the live stream's socket, which wakes the thread that reads it; later streams end at once."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the live stream and every pooled connection."""
        self.interrupt()
        self._connection.close()

    def _direct(self, tool: DiscoveredTool) -> str | None:
        host = f"[{tool.host}]" if ":" in tool.host and not tool.host.startswith("[") else tool.host
        return f"{self._scheme}://{host}:{tool.port}" if f"{host}:{tool.port}" in self._call_hosts else None

    def _send(self, asked: Asked, seconds: float | None = None) -> Answer:
        about = {"http.request.method": asked.method, "server.address": self._host}
        asked = dataclasses.replace(asked, headers={**asked.headers, **self._session})
        with tracing.span(asked.method, about, kind="client") as span, _translated():
            answer = self._connection.send(asked, self._work("run-", seconds or self._timeout))
            span.set({"http.response.status_code": answer.status})
            return answer

    def _work(self, prefix: str, seconds: float) -> Work:
        """What ties the request to the run that it is for, in the logs and traces of both sides."""
        named, traced = logs.request_id.get() or logs.new_request_id(prefix), tracing.headers()
        trail = Trail(named, traced.get("traceparent", ""), traced.get("tracestate", ""))
        return Work.within(seconds, trail)


class _Told:
    """A token source of the runner, whose reasons reach the run."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self.greet = getattr(source, "greet", None)

    def __call__(self) -> str:
        try:
            return tokens.checked(self._source())
        except TokenUnavailable as error:
            raise client_errors.TokenUnavailable(str(error)) from None

    def renew(self) -> None:
        tokens.renew(self._source)


def _read(reader: Callable[[Any], T], answer: Answer, otherwise: str) -> T:
    if answer.status != 200:
        raise answers.of_registry(answer.status, answer.body, answer.headers.get("retry-after"))
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise RegistryAnswerInvalid(otherwise) from None
    return reader(document)


@contextmanager
def _translated() -> Iterator[None]:
    """The client's errors as those of a run."""
    try:
        yield
    except client_errors.ToolcribError as error:
        raise _of_run(error) from error


def _of_run(error: client_errors.ToolcribError) -> RunnerError:
    if isinstance(error, client_errors.TokenUnavailable):
        return TokenUnavailable(error.detail)
    if isinstance(error, client_errors.DeadlineExceeded):
        return RegistryUnavailable("the registry did not respond in time")
    if isinstance(error, client_errors.RegistryAnswerInvalid):
        return RegistryAnswerInvalid(error.detail)
    return RegistryUnavailable(error.detail)
