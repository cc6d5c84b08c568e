"""What identities see of one snapshot, remembered within a bound of bytes: the latest seen stay.

Callers that see the same share what is large: the view, the encoded answer of `GET /`, the entries for searches. So a
thousand service accounts of one group cost little more than one; the bound is for those that all see something else.
Used from one event loop only.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Any

from toolcrib.audit.callers import Caller
from toolcrib.authorizer import Action, Decision, decide
from toolcrib.identity import Identity
from toolcrib.snapshot import Snapshot
from toolcrib.view import View
from toolcrib.wire.publish import PublishedTool

MOST = 4096
"""Caller views remembered at one time."""
BYTES = 128 << 20
CALLS = 8
"""Tools of which a caller view remembers how calls of them were decided."""
_CALLER_VIEW, _TEXT, _TOOL = 2944, 128, 400
"""Estimated bytes of a caller view; of each scope and group in it; of each tool in a view's mappings, strings not counted
that the snapshot holds anyhow."""

Answer = tuple[bytes, bytes]
"""The encoded answer of `GET /` and its ETag."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Content:
    """What is the same for all who see the same tools by the same names and have the same scopes."""

    view: View
    key: Any = None
    answer: Answer | None = None
    listed_bytes: int | None = None
    """Of the answer, where that was estimated before it was made."""
    weight: int = 0
    holders: int = 0
    """How many remembered caller views are of it."""


@dataclass(slots=True)
class CallerView:
    """One identity's view of one revision, and what was made of it so far."""

    content: Content
    snapshot: Snapshot
    identity: Identity | None
    scopes: tuple[str, ...]
    until: float
    since: float = -math.inf
    """When it was made: before that, where the clock was set back, it says nothing."""
    whole: bool = True
    """Whether it has all that the identity may see."""
    caller: Caller | None = None
    """What of the identity decides, once a record names it."""
    _calls: dict[str, tuple[PublishedTool, Decision]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def view(self) -> View:
        """The tools."""
        return self.content.view

    @property
    def revision(self) -> str:
        """Names the content of the view, not the registry's revision: that would tell of what is hidden."""
        return self.view.digest[:16]

    def decide(self, tool: PublishedTool, action: Action, now: float) -> Decision:
        """Whether the identity may do `action` with `tool` by this snapshot.

        A call is decided once for as long as the view holds: until then nothing that decides it changes.
        """
        if action is not Action.CALL or not self.since <= now < self.until:
            return decide(self.identity, tool, action, self.snapshot.policy, now)
        known = self._calls.get(tool.tool_id)
        if known is None or known[0] is not tool:  # it may be a candidate of it
            if len(self._calls) >= CALLS:
                self._calls.clear()
            known = tool, decide(self.identity, tool, action, self.snapshot.policy, now)
            self._calls[tool.tool_id] = known
        return known[1]

    def without(self, namespaces: Container[str], scopes: tuple[str, ...]) -> CallerView:
        """The same without the tools of some namespaces, and with no other scopes than these."""
        view = self.view
        parts = {i: part for i, part in view.parts.items() if part.namespace not in namespaces}
        tools = {i: tool for i, tool in view.tools.items() if tool.namespace not in namespaces}
        left = View(
            tools=tools,
            names={name: i for name, i in view.names.items() if i in tools},
            ambiguous={
                n: left for n, ids in view.ambiguous.items() if (left := tuple(i for i in ids if i in tools))
            },
            valid_until=view.valid_until,
            digest=hashlib.sha256(f"{view.digest} {sorted(tools)} {sorted(parts)}".encode()).hexdigest(),
            parts=parts,
        )
        return replace(self, content=Content(left), scopes=scopes, whole=False)

    @property
    def weight(self) -> int:
        """Estimated bytes, its content not counted."""
        who = self.identity
        texts = len(self.scopes) + (0 if who is None else len(who.groups) + len(who.scopes or ()))
        return _CALLER_VIEW + _TEXT * texts


class ViewCache:
    """The caller views of one snapshot. `clear` it when there is another.

    Args:
        bytes_: estimated, of all together; the latest view is kept even if it alone is larger, but not its answer.
        most: their number.
    """

    def __init__(self, bytes_: int = BYTES, most: int = MOST) -> None:
        self._bytes, self._most = bytes_, most
        self._contents: dict[Any, Content] = {}
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        for content in self._contents.values():
            content.answer = None  # a watch stream may hold on to the view
        self._known: OrderedDict[Any, CallerView] = OrderedDict()
        self._contents = {}
        self.weight = 0

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Any) -> CallerView | None:
        """The caller view under `key`, which becomes the latest."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def content(self, view: View, scopes: tuple[str, ...], *, anonymous: bool) -> Content:
        """What those share who see `view`, whose end is left out of it: each has its own."""
        key = (view.digest, tuple(sorted(view.ambiguous.items())), scopes, anonymous)
        return self._contents.get(key) or Content(view, key)

    def put(self, key: Any, caller_view: CallerView) -> None:
        """Remember `caller_view`, in the place of another under `key`, and forget what there is no room for."""
        content = caller_view.content
        if not content.holders:
            self._contents[content.key] = content
            content.weight = _TOOL * len(content.view.tools)
            self.weight += content.weight
        content.holders += 1
        self._drop(key)  # afterwards: it may be the only other one to hold this content
        self.weight += caller_view.weight
        self._known[key] = caller_view
        self._shrink()

    def answer(self, caller_view: CallerView, make: Callable[[], Answer]) -> Answer:
        """The encoded answer of `GET /` for `caller_view`, made once for all who get the same; remembered where it fits."""
        content = caller_view.content
        if content.answer is not None:
            return content.answer
        made = make()
        size = len(made[0])
        alone = caller_view.weight + content.weight + size
        if self._contents.get(content.key) is content and alone <= self._bytes:
            content.answer = made
            content.weight += size
            self.weight += size
            self._shrink()
        return made

    def _shrink(self) -> None:
        while len(self._known) > 1 and (len(self._known) > self._most or self.weight > self._bytes):
            self._drop(next(iter(self._known)))

    def _drop(self, key: Any) -> None:
        caller_view = self._known.pop(key, None)
        if caller_view is None:
            return
        content = caller_view.content
        self.weight -= caller_view.weight
        content.holders -= 1
        if not content.holders:
            self.weight -= content.weight
            content.answer = None
            del self._contents[content.key]
