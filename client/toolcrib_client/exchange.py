"""What is asked of the registry and what an exchange came to; who sends it is in `connection` and `aio`. Pure but for random ids.

The token goes to the URL that was given and nowhere else: no redirect is followed, and proxy variables are ignored.
"""

from __future__ import annotations

import json
import re
import secrets
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2

from toolcrib_client import errors, results
from toolcrib_client.results import LoadedTool
from toolcrib_client.version import __version__

MOST_BYTES = 64 * 1024 * 1024
"""Of one answer; the registry's own bounds are lower."""
PAGE = 500
WATCH = "/v1/watch"
"""The live stream of what the caller sees."""
BATCH = 100
"""Tools of one `/v1/load`, the registry's bound."""
CONNECT_WITHIN = 5.0
TOKEN_WITHIN = 10.0
SILENCE = 60.0
"""Seconds without even a comment after which a live stream counts as dead."""
PAUSES: tuple[float, ...] = (0.0, 0.3)
"""Seconds before a request that could do no harm is sent again: behind a Service another replica may answer."""
RECONNECT = (0.2, 15.0)
"""Seconds before a live stream is opened again: the first and the longest pause."""
Observe = Callable[[str, str, float], None]
"""Told of each request: what it was for (`tools`, `search`, `describe`, `load`, `call`), `ok` or the code of its error, seconds."""
T = TypeVar("T")
_PRINTABLE = re.compile(r"[!-~]{1,65536}")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `reads`: it changes nothing, so it may be sent again after its connection broke."""

    method: str
    path: str
    reads: bool
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Its own, beside the token and those of its `Trail`."""
    base: str | None = None
    """`http(s)://host:port` to send it to; None is the registry's URL."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. The names of headers may be written in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Trail:
    """What ties a request to the registry's log and to the caller's trace."""

    request_id: str = field(default_factory=lambda: f"client-{secrets.token_hex(8)}")
    traceparent: str = field(default_factory=lambda: f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01")
    """Empty: the request is part of no trace."""
    tracestate: str = ""

    def headers(self) -> dict[str, str]:
        """For the request."""
        given = {"traceparent": self.traceparent, "tracestate": self.tracestate}
        return {"x-request-id": self.request_id, **{name: value for name, value in given.items() if value}}

    def names(self) -> dict[str, Any]:
        """For an error."""
        return {"request_id": self.request_id, "traceparent": self.traceparent}


def base_url(given: str, what: str = "the registry's URL") -> str:
    """The URL without a slash at its end; `what` names it in errors.

    Raises:
        ValueError: it is not http(s), or has a query, a fragment or credentials, which would take the token's place.
    """
    try:
        url = httpx2.URL(given)
        url.raw_host.decode("ascii").encode("idna").decode("idna")  # as the resolver does
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise ValueError(f"{what} cannot be read: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"{what} must be http(s)://host[:port][/path]")
    # An empty query would swallow the path of a request, too.
    others = {"credentials": url.userinfo, "a query": b"?" in url.raw_path, "a fragment": url.fragment}
    for name, there in others.items():
        if there:
            raise ValueError(f"{what} has {name}")
    return str(url).rstrip("/")


def settings(
    url: str, ca_file: str | None, user_agent: str = f"toolcrib-client/{__version__}"
) -> dict[str, Any]:
    """How both kinds of connection pool are made."""
    verify = ssl.create_default_context(cafile=ca_file) if url.startswith("https:") else False
    return {
        "verify": verify,
        "trust_env": False,
        "follow_redirects": False,
        "headers": {"user-agent": user_agent, "accept": "application/json"},
    }


def listing(cursor: str | None) -> Asked:
    """A page of the caller's tools. A cursor is base64url, so it needs no escape."""
    return Asked("GET", f"/v1/tools?limit={PAGE}" + (f"&cursor={cursor}" if cursor else ""), reads=True)


def searching(
    query: str | None,
    *,
    limit: int,
    tags: Sequence[str] = (),
    servers: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    min_score: float | None = None,
) -> Asked:
    """A search; what is empty is not sent."""
    filters = {"query": query, "tags": tags, "servers": servers, "namespaces": namespaces}
    body: dict[str, Any] = {k: v if isinstance(v, str) else list(v) for k, v in filters.items() if v}
    return _post(
        "/v1/search", body | {"limit": limit} | ({} if min_score is None else {"min_score": min_score})
    )


def describing(tool: str) -> Asked:
    """One definition."""
    return _post("/v1/describe", {"tool": tool})


def loading(tools: Sequence[str]) -> list[Asked]:
    """Definitions, in batches."""
    batches = (tools[first : first + BATCH] for first in range(0, len(tools), BATCH))
    return [_post("/v1/load", {"tools": list(batch)}) for batch in batches]


def calling(tool: str, arguments: Mapping[str, Any]) -> Asked:
    """A call. It is never sent again once it may have arrived.

    Raises:
        ValueError, TypeError: the arguments are not JSON.
    """
    return _post("/v1/call", {"tool": tool, "arguments": dict(arguments)}, reads=False)


@contextmanager
def observed(observe: Observe | None, asked: Asked) -> Iterator[None]:
    """Tell `observe` what comes of the request within; an error without a code goes by its name."""
    began, outcome = time.monotonic(), "cancelled"
    try:
        yield
        outcome = "ok"
    except errors.ToolcribError as error:
        outcome = error.code or type(error).__name__
        raise
    finally:
        if observe is not None:
            operation = asked.path.partition("?")[0].rpartition("/")[2]
            observe(operation, outcome, time.monotonic() - began)


def bearer(token: object, trail: Trail) -> dict[str, str]:
    """The header of a token (RFC 6750 §2.1).

    Raises:
        TokenUnavailable: it is no text that can stand in a header.
    """
    if not isinstance(token, str) or not _PRINTABLE.fullmatch(token.strip()):
        raise errors.TokenUnavailable(
            "the token source gave no token: it must be printable ASCII without spaces", **trail.names()
        )
    return {"authorization": f"Bearer {token.strip()}"}


def renew(source: object) -> object:
    """Tell a token source that its token was refused, if it has a method `renew` to know by; what that returns."""
    told = getattr(source, "renew", None)
    return told() if callable(told) else None


def token_failed(error: BaseException, trail: Trail) -> errors.TokenUnavailable:
    """What a source that raised comes to: its kind only, since a message may hold a secret, except this library's own."""
    if isinstance(error, errors.TokenUnavailable):
        return errors.TokenUnavailable(error.detail, **trail.names())
    return errors.TokenUnavailable(f"the token source raised {type(error).__name__}", **trail.names())


def token_within(left: float) -> float:
    """Seconds that the token source has, of those that are left: less, so that the error names it."""
    return min(TOKEN_WITHIN, 0.9 * left)


def token_slow(seconds: float, trail: Trail) -> errors.TokenUnavailable:
    """What a source that hangs comes to."""
    return errors.TokenUnavailable(f"the token source gave no token within {seconds:.3g} s", **trail.names())


def harmless(asked: Asked, error: httpx2.RequestError) -> bool:
    """Whether to send again: nobody was reached, or it only reads and its connection broke."""
    if isinstance(error, httpx2.ConnectError):
        return True
    return asked.reads and isinstance(error, httpx2.RemoteProtocolError | httpx2.NetworkError)


def unreachable(error: httpx2.HTTPError, trail: Trail) -> errors.ToolcribError:
    """What a failed exchange means."""
    if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
        return errors.DeadlineExceeded("the registry did not answer before the deadline", **trail.names())
    if isinstance(error, httpx2.DecodingError):
        return errors.RegistryAnswerInvalid(
            "the answer's content encoding is broken: check that the URL is a registry's", **trail.names()
        )
    return errors.RegistryUnavailable(
        f"the registry cannot be reached: {str(error) or type(error).__name__}", **trail.names()
    )


def read(reader: Callable[[Any], T], answer: Answer, trail: Trail) -> T:
    """What a success says.

    Raises:
        ToolcribError: by the problem's code, with what ties it to the registry's log.
    """
    if answer.status != 200:
        named = answer.headers.get("x-request-id") or trail.request_id
        raise errors.of_answer(
            answer.status,
            answer.body,
            answer.headers.get("retry-after"),
            request_id=named,
            traceparent=trail.traceparent,
        )
    try:
        return reader(json.loads(answer.body))
    except (ValueError, RecursionError, OverflowError):
        raise errors.RegistryAnswerInvalid(
            "the answer is not JSON: check that the URL is a registry's", **trail.names()
        ) from None
    except errors.RegistryAnswerInvalid as error:
        raise errors.RegistryAnswerInvalid(error.detail, status=answer.status, **trail.names()) from None


def too_long(trail: Trail) -> errors.RegistryAnswerInvalid:
    """For an answer beyond `MOST_BYTES`."""
    return errors.RegistryAnswerInvalid(f"the answer is larger than {MOST_BYTES} bytes", **trail.names())


def too_late(seconds: float, trail: Trail) -> errors.DeadlineExceeded:
    """For a method whose deadline passed."""
    return errors.DeadlineExceeded(f"the deadline of {seconds:g} s passed", **trail.names())


def no_stream(trail: Trail) -> errors.RegistryAnswerInvalid:
    """For an answer that is no event stream."""
    return errors.RegistryAnswerInvalid(
        "the live stream is not an event stream: check that the URL is a registry's", **trail.names()
    )


def changed(event: httpx2.ServerSentEvent, trail: Trail) -> results.Change | None:
    """What an event of the live stream says."""
    return read(lambda about: results.change(event.event, about), Answer(200, {}, event.data.encode()), trail)


def by_model_name(tools: Iterable[LoadedTool]) -> dict[str, str]:
    """Function name → tool id, for calls by the names that a model was given."""
    return {t.model_name: t.tool_id for t in tools}


def pause(failures: int) -> float:
    """Seconds before a live stream is opened again."""
    return float(min(RECONNECT[0] * 2 ** min(failures, 10), RECONNECT[1]))


def _post(path: str, body: Mapping[str, Any], *, reads: bool = True) -> Asked:
    content = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Asked("POST", path, reads, content.encode())
