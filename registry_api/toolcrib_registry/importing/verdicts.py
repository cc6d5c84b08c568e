"""From what went wrong to what is said of a server: pure. Details name facts of the protocol, never a server's own words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from toolcrib.wire.imports import MOST_TOOLS, ServerOutcome
from toolcrib_registry.calls.backends.remedies import CLUSTER, Remedies
from toolcrib_registry.calls.backends.routes import Authentication
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import (
    BackendAuthFailed,
    BackendUnavailable,
    CallError,
    CredentialPending,
    ServicePending,
)
from toolcrib_registry.outbound import errors as outbound
from toolcrib_registry.outbound.guard import EgressRule, Target
from toolcrib_registry.upstream import errors as upstream
from toolcrib_registry.upstream.lists import Cut

_INTERNAL_ERROR = -32603
_METHOD_NOT_FOUND = -32601
_URL = re.compile(r"https?://[!-~]{1,2000}")
_MOST_DETAIL = 300
_MOST_PLACE = 200
_OF_PLACE = (ServerOutcome.UNREACHABLE, ServerOutcome.PROTOCOL_ERROR, ServerOutcome.SERVER_ERROR)
"""Of which the address may be the cause."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a look that brought no list.

    Attributes:
        retry_after: seconds before which the server does not want to be asked again.
    """

    outcome: ServerOutcome
    detail: str
    metadata_url: str | None = None
    retry_after: int | None = None


def of_failure(
    failure: CallError | outbound.OutboundError | upstream.McpFailure,
    credential: Authentication,
    remedies: Remedies = CLUSTER,
    asked: Target | None = None,
) -> Verdict:
    """What a failure says of the server; `credential` is what was sent, `asked` where to."""
    verdict = _of(failure, credential, remedies)
    detail = verdict.detail[:_MOST_DETAIL]
    if asked is not None and verdict.outcome in _OF_PLACE:
        detail += _asked(asked)
    return Verdict(verdict.outcome, detail, verdict.metadata_url, verdict.retry_after)


def of_cut(cut: Cut, pages: int, size: int) -> Verdict:
    """What a list says that was not read to its end; no part of it is used."""
    match cut:
        case Cut.REPEATED:
            return Verdict(ServerOutcome.PROTOCOL_ERROR, "The list of tools has no end: a cursor came twice.")
        case Cut.BYTES:
            return Verdict(ServerOutcome.TOO_LARGE, f"The list of tools is larger than {size} bytes.")
        case Cut.PAGES:
            return Verdict(ServerOutcome.TOO_LARGE, f"The list of tools has more than {pages} pages.")
    return Verdict(ServerOutcome.TOO_LARGE, f"The server has more than {MOST_TOOLS} tools.")


REPEATED = Verdict(
    ServerOutcome.PROTOCOL_ERROR, "The list of tools repeats the server's credential and is not used."
)
BROKEN = Verdict(ServerOutcome.PROTOCOL_ERROR, "The registry failed to read the list; see its log.")
NO_ROOM = Verdict(ServerOutcome.TOO_LARGE, "The lists of all servers together exceed the memory for them.")


def _of(
    failure: CallError | outbound.OutboundError | upstream.McpFailure,
    credential: Authentication,
    remedies: Remedies,
) -> Verdict:
    match failure:
        case CredentialPending():
            detail = "The credential has not reached this replica yet, or holds characters that a header cannot carry."
            return Verdict(ServerOutcome.CREDENTIAL_PENDING, detail)
        case BackendAuthFailed() | BackendUnavailable():
            return Verdict(
                ServerOutcome.AUTHENTICATION_FAILED,
                _sentence(failure.detail),
                retry_after=failure.retry_after,
            )
        case ServicePending():
            return Verdict(ServerOutcome.NO_ADDRESS, _sentence(failure.detail))
        case CallError():
            return Verdict(ServerOutcome.CREDENTIAL_REFUSED, _sentence(failure.detail))
        case outbound.NoAddress():
            detail = f"{_sentence(failure.reason)} {remedies.address(failure.namespace, failure.name)}"
            return Verdict(ServerOutcome.NO_ADDRESS, detail)
        case outbound.HostNotAllowed():
            # the name of a host keeps its case
            detail = f"The host {failure.reason}. {remedies.host(failure.host, failure.port)}"
            return Verdict(ServerOutcome.EGRESS_REFUSED, detail)
        case outbound.EgressRefused():
            return Verdict(ServerOutcome.EGRESS_REFUSED, _sentence(failure.reason))
        case outbound.TooLarge():
            return Verdict(ServerOutcome.TOO_LARGE, _sentence(str(failure)))
        case outbound.ProtocolViolation():
            return Verdict(ServerOutcome.PROTOCOL_ERROR, _sentence(str(failure)))
        case outbound.OutboundError():
            return Verdict(ServerOutcome.UNREACHABLE, _sentence(str(failure)))
        case upstream.TransportUnsupported():
            return Verdict(
                ServerOutcome.TRANSPORT_UNSUPPORTED,
                f"{_sentence(str(failure))} Use a server of Streamable HTTP (MCP 2025-03-26 or later).",
            )
        case upstream.LoginRequired():
            return _login(failure, credential)
        case upstream.RefusedByStatus():
            return _by_status(failure)
        case upstream.RefusedByRpc():
            return _by_rpc(failure)
    return Verdict(ServerOutcome.PROTOCOL_ERROR, _sentence(str(failure)))


def _asked(place: Target) -> str:
    """The address that was asked. A query may hold a credential; a program has no address."""
    if place.reach is EgressRule.PROGRAM:
        return ""
    host = "" if place.address is None or place.address == place.host else f" ({place.host})"
    return f" Asked: {(place.origin + place.path.partition('?')[0])[:_MOST_PLACE]}{host}."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _login(failure: upstream.LoginRequired, credential: Authentication) -> Verdict:
    url = failure.metadata_url
    if url is not None and (
        _URL.fullmatch(url) is None or Secrets.of(credential.secrets).repeated_in(url.encode())
    ):
        url = None
    if credential.headers:
        detail = "The server refuses the credential (401). Check the Secret that auth names."
        return Verdict(ServerOutcome.AUTHENTICATION_FAILED, detail, url)
    if url is None:
        detail = "The server wants a credential (401). Set auth."
        return Verdict(ServerOutcome.AUTHENTICATION_FAILED, detail)
    detail = (
        "The server wants a login, which the registry does not do. Set auth to a credential that it accepts."
    )
    return Verdict(ServerOutcome.LOGIN_REQUIRED, detail, url)


def _by_status(failure: upstream.RefusedByStatus) -> Verdict:
    status, wait = failure.status, failure.retry_after
    if status == 403:
        return Verdict(ServerOutcome.AUTHENTICATION_FAILED, "The server refuses the credential (403).")
    if status == 429:
        return Verdict(
            ServerOutcome.RATE_LIMITED, "The server limits how often it is asked (429).", retry_after=wait
        )
    if status >= 500:
        return Verdict(ServerOutcome.SERVER_ERROR, f"The server failed ({status}).", retry_after=wait)
    if 300 <= status < 400:
        return Verdict(
            ServerOutcome.PROTOCOL_ERROR, f"The server redirects ({status}); redirects are not followed."
        )
    return Verdict(
        ServerOutcome.PROTOCOL_ERROR, f"The server refused the request ({status}).", retry_after=wait
    )


def _by_rpc(failure: upstream.RefusedByRpc) -> Verdict:
    if failure.code == _METHOD_NOT_FOUND:
        return Verdict(
            ServerOutcome.PROTOCOL_ERROR, "The server has no list of tools (tools/list is unknown)."
        )
    if failure.code == _INTERNAL_ERROR:
        return Verdict(ServerOutcome.SERVER_ERROR, f"The server failed (error {failure.code}).")
    return Verdict(ServerOutcome.PROTOCOL_ERROR, f"The server refused the request (error {failure.code}).")
