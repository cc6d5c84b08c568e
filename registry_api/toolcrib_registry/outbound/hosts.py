"""Hosts as people write them: one canonical form, or refused.

What a dialler would read differently from what stands there (2130706433, 0x7f.1, 0177.0.0.1, 127.1, %31, a zone id,
non-ASCII) is refused rather than guessed at: the checked text and the dialled one must be the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from toolcrib.resources.addresses import URL
from toolcrib_registry.outbound.errors import EgressRefused

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_URL = re.compile(URL[1:-1])
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Location:
    """A URL taken apart: `host` is canonical, `path` begins with / and holds the query as written."""

    scheme: str
    host: str
    port: int
    path: str


@lru_cache(maxsize=4_096)
def canonical(host: str) -> str:
    """The one spelling of `host`: a lower-case DNS name without final dot, or an IP address (IPv6 without brackets).

    Raises:
        EgressRefused: another spelling of an address, or no host at all.
    """
    if not host.isascii():
        raise EgressRefused("the host is not ASCII; write its xn-- form")
    text = host.lower()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
        if ":" not in text:
            raise EgressRefused("the host is not an IPv6 address")
    if ":" in text:
        return str(_ipv6(text))
    text = text.removesuffix(".")
    labels = text.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        # a last label that is a number makes every dialler read an IPv4 address (WHATWG URL, "ends in a number")
        try:
            return str(IPv4Address(text))
        except AddressValueError:
            raise EgressRefused("the host is an unusual spelling of an IPv4 address") from None
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise EgressRefused("the host is no DNS name")
    return text


def address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a canonical host is, None for a name."""
    if ":" in host:
        return IPv6Address(host)
    return IPv4Address(host) if host.rsplit(".", 1)[-1].isdigit() else None


@lru_cache(maxsize=4_096)
def split_url(url: str) -> Location:
    """Take an http(s) URL apart.

    Raises:
        EgressRefused: not a plain http(s) URL, user information, a fragment, or a host that is refused.
    """
    if len(url) > 4_096 or _URL.fullmatch(url) is None or "#" in url:
        raise EgressRefused("not a plain http or https URL")
    scheme, rest = url.split("://", 1)
    authority, slash, path = rest.partition("/")
    host, port = _authority(authority, DEFAULT_PORTS[scheme])
    return Location(scheme=scheme, host=host, port=port, path=slash + path or "/")


@lru_cache(maxsize=1_024)
def split_host_port(text: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port`, canonical.

    Raises:
        EgressRefused: not of that form.
    """
    host, port = _authority(text, 0)
    if port == 0:
        raise EgressRefused(f"{text!r} is not host:port")
    return host, port


def _authority(text: str, default: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        return canonical(text), default
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise EgressRefused("an IPv6 address needs brackets")
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) <= 65_535:
        raise EgressRefused("the port is not a number from 1 to 65535")
    return canonical(host), int(port)


def _ipv6(text: str) -> IPv6Address:
    if "%" in text:
        raise EgressRefused("the host has a zone id")
    try:
        return IPv6Address(text)
    except AddressValueError:
        raise EgressRefused("the host is not an IPv6 address") from None
