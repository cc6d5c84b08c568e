"""Security schemes: how tools authenticate, by a Secret that people make. Values are never read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from toolcrib.resources.backends import HEADER, AuthType
from toolcrib.resources.placing import is_reserved_header
from toolcrib_cli.imports.openapi.documents import Document, LeftOutError, listed, mapped

_RANK = (AuthType.BEARER, AuthType.HEADER, AuthType.BASIC)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme that a tool can use.

    Attributes:
        name: in the document.
        type: how the credential is sent.
        header: its header, of type Header.
    """

    name: str
    type: AuthType
    header: str | None = None


class Security:
    """The security schemes of a document."""

    def __init__(self, document: Document) -> None:
        self._default = document.content.get("security")
        self._schemes: dict[str, Scheme | None] = {}
        components = mapped(document.content.get("components"))
        for name, raw in mapped(components.get("securitySchemes")).items():
            try:
                self._schemes[name] = _scheme(name, document.resolved(raw))
            except LeftOutError:
                self._schemes[name] = None
        self.unusable: set[str] = set()
        """Names of schemes that operations want and no tool can use."""

    def of_operation(self, operation: dict[str, Any]) -> Scheme | None:
        """The scheme that a tool uses; None: it needs none, or none that can be used."""
        wanted = operation.get("security", self._default)
        ways = [way for way in listed(wanted) if isinstance(way, dict)]
        usable = [found for way in ways if len(way) == 1 and (found := self._schemes.get(next(iter(way))))]
        if usable:
            return min(usable, key=lambda scheme: _RANK.index(scheme.type))
        if ways and all(ways):
            self.unusable |= {str(name) for way in ways for name in way}
        return None


def _scheme(name: str, given: dict[str, Any]) -> Scheme | None:
    kind = given.get("type")
    if kind in ("oauth2", "openIdConnect"):
        return Scheme(name, AuthType.BEARER)
    if kind == "http":
        scheme = str(given.get("scheme", "")).lower()
        found = {"bearer": AuthType.BEARER, "basic": AuthType.BASIC}.get(scheme)
        return None if found is None else Scheme(name, found)
    header = given.get("name")
    usable = isinstance(header, str) and re.fullmatch(HEADER, header) is not None
    if kind != "apiKey" or given.get("in") != "header" or not usable:
        return None
    # a credential may stand in Authorization, though no argument may
    if str(header).lower() == "authorization" or not is_reserved_header(str(header)):
        return Scheme(name, AuthType.HEADER, str(header))
    return None
