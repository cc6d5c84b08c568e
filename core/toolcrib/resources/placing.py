"""Where a call's arguments stand in an HTTP request: path, query, header or body."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import ClassVar, Protocol

from pydantic import Field

from toolcrib.resources.meta import Model, Rule, unique

PLACEHOLDER = r"\{([^{}/]+)\}"
"""Where an argument stands in the path of a backend's address; the group is its name."""
HEADER = r"^[A-Za-z0-9-]{1,64}$"
ASSERTION_HEADER = "toolcrib-assertion"
"""The header of the call assertion, as headers are compared: in lower case."""
ARGUMENT = r"^[^\x00-\x1f\x7f]{1,128}$"
_RESERVED_HEADERS = (
    "accept", "accept-charset", "accept-encoding", "authorization", "connection", "content-encoding", "content-length",
    "content-type", "cookie", "cookie2", "expect", "host", "http2-settings", "idempotency-key", "keep-alive", "proxy",
    "set-cookie", "te", "traceparent", "tracestate", "trailer", "transfer-encoding", "upgrade", "user-agent", "via",
    "x-request-id", "base-url", "client-ip", "front-end-https", "sudo", "x-host", "x-originating-ip", "x-url-scheme",
)  # fmt: skip
"""Headers of the connection, of credentials, of the registry itself, and those that override parts of a call."""
_RESERVED_PREFIXES = (
    "forwarded", "impersonate-", "proxy-", "remote-", "ssl-client-", "toolcrib-", "x-auth-request-", "x-authenticated-",
    "x-envoy-", "x-forward", "x-http-", "x-impersonate-", "x-original-", "x-proxy", "x-real-", "x-remote-", "x-rewrite-",
    "x-ssl-client-", "x-webauth-",
)  # fmt: skip
_RESERVED_SUFFIXES = ("-override", "-client-ip", "-connecting-ip")
"""With the prefixes: frameworks and proxies take method, host, path, user or client address from such headers."""


class ParameterPlace(StrEnum):
    """The part of a request that an argument fills."""

    PATH = "path"
    QUERY = "query"
    HEADER = "header"


class BodyKind(StrEnum):
    """How a request carries the arguments that no parameter places."""

    JSON = "json"
    FORM = "form"
    DEEP_FORM = "deepForm"
    NONE = "none"


def lower_ascii(text: str) -> str:
    """CEL's lowerAscii()."""
    return re.sub("[A-Z]", lambda found: found[0].lower(), text)


def is_reserved_header(name: str) -> bool:
    """Return True if no argument may fill the header.

    It belongs to the connection, to a credential or to the registry, or it overrides method, host, path, user or address. A
    name with an underscore may be any of these: gateways by CGI read `X_Remote_User` as `X-Remote-User`.
    """
    lower = name.lower().replace("_", "-")
    return (
        lower in _RESERVED_HEADERS
        or lower.startswith(_RESERVED_PREFIXES)
        or lower.endswith(_RESERVED_SUFFIXES)
    )


_SENT_AS = "(has(self.name) ? self.name : self.argument)"


class HttpParameter(Model):
    """One argument, and the part of the request that it fills."""

    argument: str = Field(
        pattern=ARGUMENT, max_length=128, description="The argument, as inputSchema names it."
    )
    place: ParameterPlace = Field(
        alias="in",
        strict=False,
        description="path: a {placeholder} of path or url, one segment without slashes. query: a list repeats the name, an"
        " object is sent as name[key]. header: the value of the header, printable ASCII.",
    )
    name: str | None = Field(
        default=None,
        pattern=ARGUMENT,
        max_length=128,
        description="Name of the placeholder, query parameter or header; default: the argument.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.__in__ != 'header' || {_SENT_AS}.matches('{HEADER}')",
            "a header's name has letters, digits and -, at most 64: set name",
            lambda p: p.place is not ParameterPlace.HEADER or re.fullmatch(HEADER, p.sent_as) is not None,
        ),
        Rule(
            f"self.__in__ != 'header' || !({_SENT_AS}.lowerAscii() in ["
            + ", ".join(f"'{h}'" for h in _RESERVED_HEADERS)
            + "]"
            + "".join(f" || {_SENT_AS}.lowerAscii().startsWith('{prefix}')" for prefix in _RESERVED_PREFIXES)
            + "".join(f" || {_SENT_AS}.lowerAscii().endsWith('{suffix}')" for suffix in _RESERVED_SUFFIXES)
            + ")",
            "this header is reserved for the connection, for credentials or for the registry, or overrides method, host, path,"
            " user or address; no argument can fill it",
            lambda p: p.place is not ParameterPlace.HEADER or not is_reserved_header(p.sent_as),
        ),
    )

    @property
    def sent_as(self) -> str:
        """The name of the placeholder, query parameter or header."""
        return self.argument if self.name is None else self.name


def one_place_each(parameters: tuple[HttpParameter, ...] | None) -> tuple[HttpParameter, ...] | None:
    """A list whose key is the argument: duplicates are refused."""
    unique(tuple(p.argument for p in parameters or ()))
    return parameters


class _Placed(Protocol):
    path: str | None
    url: str | None
    parameters: tuple[HttpParameter, ...] | None


def parameter_rules() -> tuple[Rule, ...]:
    """The rules of a backend's list of parameters, beside its `path` and `url`."""

    def in_the_path(h: _Placed) -> bool:
        route = (h.path or h.url or "").partition("?")[0]
        return all(
            f"{{{p.sent_as}}}" in route and not any(c in p.sent_as for c in "{}/")
            for p in h.parameters or ()
            if p.place is ParameterPlace.PATH
        )

    def apart(h: _Placed) -> bool:
        taken = [(p.place, lower_ascii(p.sent_as)) for p in h.parameters or ()]
        return len(set(taken)) == len(taken)

    def sent_as(one: str) -> str:
        return f"(has({one}.name) ? {one}.name : {one}.argument)"

    p, q = sent_as("p"), sent_as("q")
    route = "(has(self.path) ? self.path : has(self.url) ? self.url : '').split('?')[0]"
    return (
        Rule(
            f"!has(self.parameters) || self.parameters.all(p, p.__in__ != 'path' || ({route}.contains('{{' + {p} + '}}')"
            f" && !{p}.contains('/') && !{p}.contains('{{') && !{p}.contains('}}')))",
            "a parameter in path needs its {placeholder} in path, or in url before a query",
            in_the_path,
        ),
        Rule(
            "!has(self.parameters) || self.parameters.all(p, self.parameters.exists_one(q, p.__in__ == q.__in__"
            f" && {p}.lowerAscii() == {q}.lowerAscii()))",
            "two parameters fill the same placeholder, query parameter or header (upper and lower case are the same)",
            apart,
        ),
    )
