"""What servers list, page by page, within bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolcrib_registry.upstream.errors import AnswerBroken
from toolcrib_registry.upstream.exchanges import Answered
from toolcrib_registry.upstream.messages import Notification
from toolcrib_registry.upstream.servers import Bounds, Facts, Question


class Kind(StrEnum):
    """What a server may list. The value is the name of the array in an answer."""

    TOOLS = "tools"
    RESOURCES = "resources"
    TEMPLATES = "resourceTemplates"
    PROMPTS = "prompts"

    @property
    def method(self) -> str:
        """What asks for it."""
        return _METHODS[self]

    @property
    def capability(self) -> str:
        """What a server declares that has some."""
        return "resources" if self is Kind.TEMPLATES else self.value

    @property
    def changed(self) -> str:
        """The notification that the list has changed; resources and templates share one."""
        return f"notifications/{self.capability}/list_changed"

    @property
    def wanted(self) -> str:
        """The member of a subscription that asks for that notification (stateless era)."""
        return f"{self.capability}ListChanged"


_METHODS = {
    Kind.TOOLS: "tools/list",
    Kind.RESOURCES: "resources/list",
    Kind.TEMPLATES: "resources/templates/list",
    Kind.PROMPTS: "prompts/list",
}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CHANGING = (Kind.TOOLS, Kind.RESOURCES, Kind.PROMPTS)
"""Of which servers tell changes, each by a notification of its own."""
BY_NOTICE = {kind.changed: kind for kind in CHANGING}


def offers_subscriptions(facts: Facts) -> bool:
    """Whether the server tells of changes of single resources, by its own word (handshake era)."""
    said = facts.capabilities.get("resources")
    return type(said) is dict and said.get("subscribe") is True


def tells_of(first: Notification, uris: Sequence[str]) -> bool:
    """Whether the first message of a subscription says that all these resources are followed (2026-07-28)."""
    honoured = first.params.get("notifications")
    told = honoured.get("resourceSubscriptions") if type(honoured) is dict else None
    return first.method == ACKNOWLEDGED and type(told) is list and all(uri in told for uri in uris)


class Cut(StrEnum):
    """Why a list was not read to its end."""

    REPEATED = "a cursor came twice"
    BYTES = "the list has too many bytes"
    PAGES = "the list has too many pages"
    ENTRIES = "the list has too many entries"


@dataclass(frozen=True, slots=True)
class Listed:
    """Entries of a server's list, as it has them.

    Attributes:
        entries: all of them, or those of the pages that were read.
        facts: what the server says of itself.
        size: bytes of all its pages.
        ttl_ms: for how long the list may be kept; None: it does not say.
        private: it is for its caller alone.
        cut: why reading ended before the list did; None: it is whole.
    """

    entries: tuple[Any, ...] = field(repr=False)
    facts: Facts
    size: int = 0
    ttl_ms: int | None = None
    private: bool = False
    cut: Cut | None = None


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages that were read; the fields are those of `Listed`. `scopes`: the `cacheScope` of each page."""

    entries: tuple[Any, ...] = field(repr=False)
    size: int
    ttl_ms: int | None
    scopes: tuple[Any, ...]
    cut: Cut | None

    def private(self, *, stateless: bool) -> bool:
        """Return True if one of the pages is for its caller alone: any that is not `public`; in earlier revisions, any that says so."""
        return any(scope != "public" and (stateless or scope is not None) for scope in self.scopes)


async def read(
    ask: Callable[[Question], Awaitable[Answered]], kind: Kind, bounds: Bounds, most: int
) -> Pages:
    """The pages of one list, at most `most` bytes of them.

    Raises:
        McpFailure, OutboundError: one of the pages did not come.
    """
    entries, seen, size, ttl, cut = list[Any](), set[str](), 0, None, None
    scopes: list[Any] = []
    most_entries = bounds.tools if kind is Kind.TOOLS else bounds.entries
    params: dict[str, str] = {}
    while True:
        answered = await ask(Question(kind.method, params, at_most=most - size))
        page = answered.fields
        listed, cursor, ttl = page.get(kind.value), page.get("nextCursor"), page.get("ttlMs", ttl)
        if type(listed) is not list or not isinstance(cursor, str | None):
            raise AnswerBroken(f"the server's list of {kind.capability} is not one")
        entries += listed
        scopes.append(page.get("cacheScope"))
        size += len(answered.text)
        if len(entries) > most_entries:
            cut = Cut.ENTRIES
        elif cursor is not None:
            cut = _cut(cursor, seen, most - size, bounds)
        if cursor is None or cut is not None:
            break
        seen.add(cursor)
        params = {"cursor": cursor}
    ttl = ttl if type(ttl) is int and ttl >= 0 else None
    return Pages(tuple(entries), size, ttl, tuple(scopes), cut)


def _cut(cursor: str, seen: set[str], left: int, bounds: Bounds) -> Cut | None:
    """Why the page that `cursor` names is not read."""
    if cursor in seen:
        return Cut.REPEATED
    if left <= 0:
        return Cut.BYTES
    return Cut.PAGES if len(seen) + 1 >= bounds.pages else None
