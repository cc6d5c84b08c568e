"""What the resources and prompts of several servers are called by one caller: pure.

A URI is not rewritten. Where two visible servers have one, it means that of the caller's own namespace; all others are
listed as `toolcrib://namespace/server/<encoded URI>`. Prompts are named as tools are at `/mcp/direct`. What the caller does not
see changes no name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
    """Several visible servers have it; `forms` mean one each."""

    def __init__(self, forms: Sequence[str]) -> None:
        self.forms = tuple(forms)
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
        shared: keys that several servers have and that mean none of theirs: the forms that do.
    """

    kind: Kind
    shown: Mapping[str, bytes] = field(repr=False)
    meant: Mapping[str, Meant] = field(repr=False)
    shared: Mapping[str, tuple[str, ...]] = field(repr=False)

    @cached_property
    def weight(self) -> int:
        """Estimated bytes."""
        return sum(_EACH + len(text) for text in self.shown.values())

    @cached_property
    def templates(self) -> tuple[tuple[tuple[str, ...], PublishedTool], ...]:
        """The literal pieces of each template, and whose it is."""
        return tuple((tuple(_EXPRESSION.split(meant.key)), meant.part) for meant in self.meant.values())


def listed(kind: Kind, offers: Offers, home: str | None) -> Listed:
    """What is listed of a kind, and under which keys; `home` is the caller's own namespace."""
    sharing: dict[str, list[tuple[PublishedTool, Entry]]] = {}
    for _, (part, found) in sorted(offers.items()):
        for entry in found:
            sharing.setdefault(entry.key, []).append((part, entry))
    keyed = dict(_prompts(sharing, home) if kind is Kind.PROMPTS else _uris(sharing, home))
    shown = {key: keyed[key][1].shown(kind, key) for key in sorted(keyed)}
    meant = {key: Meant(part, entry.key) for key, (part, entry) in keyed.items()}
    shared: dict[str, tuple[str, ...]] = {}
    if kind is not Kind.PROMPTS:
        nobodys = ((key, several) for key, several in sharing.items() if key not in keyed)
        shared = {key: tuple(own_uri(part, key) for part, _ in several) for key, several in nobodys}
    return Listed(kind, shown, meant, shared)


def _holder(
    several: Sequence[tuple[PublishedTool, Entry]], home: str | None
) -> tuple[PublishedTool, Entry] | None:
    """Whose the bare key is; None: nobody's."""
    if len(several) == 1:
        return several[0]
    own = [each for each in several if each[0].namespace == home]
    return own[0] if len(own) == 1 else None


def _uris(
    sharing: Mapping[str, Sequence[tuple[PublishedTool, Entry]]], home: str | None
) -> Iterator[tuple[str, tuple[PublishedTool, Entry]]]:
    for uri, several in sharing.items():
        holder = _holder(several, home)
        for each in several:
            yield (uri if each is holder else own_uri(each[0], uri)), each


def _prompts(
    sharing: Mapping[str, Sequence[tuple[PublishedTool, Entry]]], home: str | None
) -> Iterator[tuple[str, tuple[PublishedTool, Entry]]]:
    ids: dict[str, str] = {}
    of: dict[str, tuple[PublishedTool, Entry]] = {}
    for name, several in sharing.items():
        holder = _holder(several, home)
        for each in several:
            id_ = names.tool_id(each[0].namespace, names.object_name(each[0].server, name))
            ids[name if each is holder else id_] = id_
            of[id_] = each
    for key, model_name in model_names.model_names(ids).items():
        yield model_name, of[ids[key]]


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
    if (own := _OWN_URI.fullmatch(uri)) is not None:
        part = parts.get(names.part_id(f"{own[1]}/{own[2]}", names.RESOURCES))
        inner = unquote(own[3])
        return None if part is None or uris.unusable(inner) is not None else Meant(part, inner)
    if (forms := resources.shared.get(uri)) is not None:
        raise Ambiguous(forms)
    return resources.meant.get(uri)


def meant_by_template(uri: str, templates: Listed, home: str | None) -> Meant | None:
    """The server of which a template makes the URI; None: there is none. `home` is the caller's own namespace.

    Raises:
        Ambiguous: there are several, and not one of them is of the caller's own namespace.
    """
    if uris.unusable(uri) is not None:
        return None
    found = {part.tool_id: part for pieces, part in templates.templates if _is_made(uri, pieces)}
    near = (
        [part for part in found.values() if part.namespace == home] if len(found) > 1 else [*found.values()]
    )
    if len(near) == 1:
        return Meant(near[0], uri)
    if found:
        raise Ambiguous([own_uri(part, uri) for _, part in sorted(found.items())])
    return None


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
