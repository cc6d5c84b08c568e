"""What the resources and prompts of several servers are called by one caller: pure.

A URI is not rewritten. Where two visible servers have one, it means that of the caller's own namespace; all others are
listed as `toolcrib://namespace/server/<encoded URI>`. Prompts are named as tools are at `/mcp/direct`. What the caller does not
see changes no name.

A server whose list is unknown may have any key. Meanwhile no server of another namespace holds a bare key that could be its.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
from urllib.parse import quote, unquote

from toolcrib import model_names, names
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.offerings.entries import Entry
from toolcrib_registry.upstream import uris
from toolcrib_registry.upstream.lists import Kind

_EACH = 512
_EXPRESSION = re.compile(r"\{[^{}]*\}")
_OWN_URI = re.compile(rf"{uris.OWN_SCHEME}://([a-z0-9-]+)/([^/]+)/(.+)", re.DOTALL)


class Meant(NamedTuple):
    """What a URI or a name means: at which server, and what it is there."""

    part: PublishedTool
    key: str


class Ambiguous(LookupError):
    """Several visible servers have a key, or may have it.

    Attributes:
        forms: keys that mean one server's each.
        away: servers, `namespace/name`, that may have it, since their lists are unknown.
    """

    def __init__(self, forms: Sequence[str], away: Sequence[str] = ()) -> None:
        self.forms, self.away = tuple(forms), tuple(away)
        super().__init__(f"several servers have it: {', '.join(self.forms)}")


Offers = Mapping[str, tuple[PublishedTool, Sequence[Entry]]]
"""By the id of what stands for a server's resources or prompts: that, and what the server lists."""


@dataclass(frozen=True, eq=False)
class Listed:
    """Entries of one kind, each under the URI, template or name by which this caller asks for it.

    Attributes:
        kind: of what.
        shown: as they are listed, by that key, sorted by it.
        meant: what each key means.
        shared: ambiguous keys, and the servers' parts that list them.
        unknown: parts of servers whose lists are unknown: they may have any key.
    """

    kind: Kind
    shown: Mapping[str, bytes] = field(repr=False)
    meant: Mapping[str, Meant] = field(repr=False)
    shared: Mapping[str, Sequence[PublishedTool]] = field(repr=False)
    unknown: tuple[PublishedTool, ...] = ()

    @property
    def away(self) -> list[str]:
        """Servers, `namespace/name`, of which nothing is listed since they do not answer."""
        return _servers(self.unknown)

    def of(self, key: str) -> Meant | None:
        """Meaning of a key. A prompt that is listed by its bare name also has the name that names its server.

        Raises:
            Ambiguous: several servers have it, or may have it.
        """
        if (meant := self.meant.get(key)) is not None:
            return meant
        if (parts := self.shared.get(key)) is not None:
            forms = {part.tool_id: self._forms[part.tool_id, key] for part in parts}
            own = _own_name if self.kind is Kind.PROMPTS else own_uri
            forms |= {part.tool_id: own(part, key) for part in self.unknown}
            raise Ambiguous([form for _, form in sorted(forms.items())], self.away)
        return self._own_names.get(key) if self.kind is Kind.PROMPTS else None

    @cached_property
    def _own_names(self) -> Mapping[str, Meant]:
        return {_own_name(meant.part, meant.key): meant for meant in self.meant.values()}

    @cached_property
    def _forms(self) -> Mapping[tuple[str, str], str]:
        """The key that each entry is listed under, by the id of its server's part and its own key."""
        return {(self.meant[key].part.tool_id, self.meant[key].key): key for key in self.shown}

    @cached_property
    def weight(self) -> int:
        """Estimated bytes."""
        return sum(_EACH + len(text) for text in self.shown.values())

    @cached_property
    def templates(self) -> tuple[tuple[tuple[str, ...], PublishedTool], ...]:
        """The literal pieces of each template, and whose it is."""
        return tuple((tuple(_EXPRESSION.split(meant.key)), meant.part) for meant in self.meant.values())


def listed(kind: Kind, offers: Offers, home: str | None, unknown: Collection[PublishedTool] = ()) -> Listed:
    """Entries of a kind, and the keys under which they are listed.

    Args:
        kind: of what.
        offers: what servers list.
        home: the caller's own namespace.
        unknown: parts of servers whose lists are unknown.
    """
    sharing: dict[str, list[tuple[PublishedTool, Entry]]] = {}
    for _, (part, found) in sorted(offers.items()):
        for entry in found:
            sharing.setdefault(entry.key, []).append((part, entry))
    away = tuple(sorted(unknown, key=lambda part: part.tool_id))
    holders = {key: _holder([part for part, _ in several], home, away) for key, several in sharing.items()}
    keyed = dict((_prompts if kind is Kind.PROMPTS else _uris)(sharing, holders))
    shown = {key: keyed[key][1].shown(kind, key) for key in sorted(keyed)}
    meant = {key: Meant(part, entry.key) for key, (part, entry) in keyed.items()}
    shared = {key: [part for part, _ in sharing[key]] for key, holder in holders.items() if holder is None}
    return Listed(kind, shown, meant, shared, away)


def _holder(
    parts: Sequence[PublishedTool], home: str | None, unknown: Collection[PublishedTool]
) -> PublishedTool | None:
    """The part that holds a bare key, of those that list it; None: the key is ambiguous.

    An unknown list makes no key of its own namespace ambiguous: one owner is behind both servers.
    """
    near = parts if len(parts) == 1 else [part for part in parts if part.namespace == home]
    if len(near) != 1:
        return None
    (holder,) = near
    contested = holder.namespace != home and any(part.namespace != holder.namespace for part in unknown)
    return None if contested else holder


_Sharing = Mapping[str, Sequence[tuple[PublishedTool, Entry]]]
_Holders = Mapping[str, PublishedTool | None]


def _uris(sharing: _Sharing, holders: _Holders) -> Iterator[tuple[str, tuple[PublishedTool, Entry]]]:
    for uri, several in sharing.items():
        for each in several:
            yield (uri if each[0] is holders[uri] else own_uri(each[0], uri)), each


def _prompts(sharing: _Sharing, holders: _Holders) -> Iterator[tuple[str, tuple[PublishedTool, Entry]]]:
    ids: dict[str, str] = {}
    of: dict[str, tuple[PublishedTool, Entry]] = {}
    for name, several in sharing.items():
        for each in several:
            id_ = _prompt_id(each[0], name)
            ids[name if each[0] is holders[name] else id_] = id_
            of[id_] = each
    for key, model_name in model_names.model_names(ids).items():
        yield model_name, of[ids[key]]


def _prompt_id(part: PublishedTool, name: str) -> str:
    return names.tool_id(part.namespace, names.object_name(part.server, name))


def _own_name(part: PublishedTool, name: str) -> str:
    """The name of a prompt that names its server."""
    id_ = _prompt_id(part, name)
    return model_names.model_name(id_, id_)


def _servers(parts: Collection[PublishedTool]) -> list[str]:
    return sorted({names.server_of_part(part.tool_id) for part in parts})


def own_uri(part: PublishedTool, uri: str) -> str:
    """The form of a URI, or template, that names its server; expressions of a template stay as they are."""
    kept = _EXPRESSION.findall(uri)
    pieces = [quote(piece, safe="") for piece in _EXPRESSION.split(uri)]
    encoded = "".join(piece + (kept[i] if i < len(kept) else "") for i, piece in enumerate(pieces))
    return f"{uris.OWN_SCHEME}://{part.namespace}/{part.server}/{encoded}"


def meant_by_uri(uri: str, parts: Mapping[str, PublishedTool], resources: Listed) -> Meant | None:
    """Which server a resource is read from, and by which URI there; None: no visible one lists it.

    In the form that names its server any URI is: a tool's answer may name resources that no list has.

    Args:
        uri: as the caller gives it.
        parts: what stands for the resources of visible servers, by id.
        resources: of these.

    Raises:
        Ambiguous: several servers list it.
    """
    if names_server(uri):
        return meant_by_own(uri, parts)
    return resources.of(uri)


def names_server(uri: str) -> bool:
    """Return True if a URI or template has the form that names its server."""
    return _OWN_URI.fullmatch(uri) is not None


def meant_by_own(uri: str, parts: Mapping[str, PublishedTool]) -> Meant | None:
    """The server that this form names, and the URI or template there; None: it is not visible. `parts` as of `meant_by_uri`."""
    own = _OWN_URI.fullmatch(uri)
    part = None if own is None else parts.get(names.part_id(f"{own[1]}/{own[2]}", names.RESOURCES))
    if own is None or part is None or uris.unusable(inner := unquote(own[3])) is not None:
        return None
    return Meant(part, inner)


def meant_by_template(
    uri: str, templates: Listed, home: str | None, unknown: Collection[PublishedTool] = ()
) -> Meant | None:
    """The server of which a template makes the URI; None: there is none.

    Args:
        uri: as the caller gives it.
        templates: of visible servers.
        home: the caller's own namespace.
        unknown: parts of servers whose lists of resources are unknown: they may have the URI itself.

    Raises:
        Ambiguous: there are several, or may be, and not one of them is of the caller's own namespace.
    """
    if uris.unusable(uri) is not None:
        return None
    found = {part.tool_id: part for pieces, part in templates.templates if _is_made(uri, pieces)}
    if not found:
        return None
    away = {part.tool_id: part for part in (*templates.unknown, *unknown)}.values()
    holder = _holder([*found.values()], home, away)
    if holder is None:
        each = {part.tool_id: part for part in (*found.values(), *away)}
        raise Ambiguous([own_uri(part, uri) for _, part in sorted(each.items())], _servers(away))
    return Meant(holder, uri)


def _is_made(uri: str, pieces: Sequence[str]) -> bool:
    """Whether the literal pieces of a template stand in the URI in their order: the server judges what is between them."""
    if len(pieces) == 1:
        return uri == pieces[0]
    first, last = pieces[0], pieces[-1]
    if len(uri) < len(first) + len(last) or not (uri.startswith(first) and uri.endswith(last)):
        return False
    at, end = len(first), len(uri) - len(last)
    for piece in pieces[1:-1]:
        at = uri.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True
