"""The import of one ToolServer: what was written, what stands there, and what is in its way."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from toolcrib import names
from toolcrib.imports.definitions import Known, mark_of, tool_name
from toolcrib.imports.plan import Others, Standing
from toolcrib.resources.servers import ToolServer
from toolcrib.resources.tools import Tool
from toolcrib.wire.imports import ServerList
from toolcrib_operator.kinds.facts import Facts
from toolcrib_operator.kinds.imported import Carried
from toolcrib_operator.kinds.quotas import TOOL
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.world import World

_BURST, _WITHIN, _SPACED = 10, 60.0, 6.0
"""So many imports of one server within so many seconds are made at once; further ones so far apart: a list may change for
ever."""


@dataclass
class Work:
    """What is known of the import of one ToolServer. Tools are named by `metadata.name`."""

    uid: str
    carried: Carried | None = None
    done: tuple[int, str] | None = None
    """Generation and list that were carried out in full."""
    marks: dict[str, tuple[object, bytes]] = field(default_factory=dict)
    """Of each Tool: what the World keeps of it, and the mark of that."""
    written: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """Of each Tool: the mark that was written, and that of what stood there then: others may add to it."""
    deleted: set[str] = field(default_factory=set)
    """Uids of Tools that the World may still have."""
    known: Known = field(default_factory=dict)
    known_at: int = 0
    """The generation that `known` is about."""
    shrunk_at: float | None = None
    failures: int = 0
    begun: deque[float] = field(default_factory=lambda: deque(maxlen=_BURST))
    due: float | None = None
    busy: bool = False

    def stands(self, standing: Mapping[str, Standing]) -> bool:
        """Whether everything that was written is there as it was, and nothing else."""
        return {name: each.mark for name, each in standing.items()} == {
            name: mark for name, (mark, _) in self.written.items()
        }

    def spaced(self, now: float) -> float:
        """Seconds until another import may begin; 0: it begins now."""
        if len(self.begun) == _BURST and now - self.begun[0] < _WITHIN and now - self.begun[-1] < _SPACED:
            return self.begun[-1] + _SPACED - now
        self.begun.append(now)
        return 0.0

    def standing(self, world: World) -> dict[str, Standing]:
        """The Tools that the ToolServer owns. May run in a thread."""
        found: dict[str, Standing] = {}
        marks: dict[str, tuple[object, bytes]] = {}
        entries = [e for e in world.controlled(self.uid) if e.ref.kind == TOOL]
        self.deleted &= {entry.uid for entry in entries}
        for entry in entries:
            if entry.deleting is not None or entry.uid in self.deleted:
                continue
            name, head = entry.ref.name, entry.head
            held = self.marks.get(name)
            mark = held[1] if held is not None and held[0] == entry.kept else marked(entry)
            marks[name] = (entry.kept, mark)
            written, left = self.written.get(name, (b"", b""))
            backend = head.spec.backend.mcp if isinstance(head, Tool) else None
            found[name] = Standing("" if backend is None else backend.tool, written if mark == left else mark)
        self.marks = marks
        return found


def in_the_way(world: World, facts: Facts, entry: Entry, server: ToolServer, listed: ServerList) -> Others:
    """Tools that stand in the way: an object of the name, or a tool of this server."""
    namespace, at = entry.ref.namespace or "default", server.metadata.name
    objects, taken = set(), {}
    for each in listed.tools:
        name = names.object_name(at, each.name)
        there = world.get(Ref(TOOL, f"{namespace}/{name}"))
        if there is not None and there.owner != entry.uid:
            objects.add(name)
        shown = tool_name(at, each.name)
        for ref in facts.links.of((namespace, at, shown)):
            other = world.get(ref)
            if other is not None and other.owner != entry.uid and other.deleting is None:
                taken[shown] = ref.name
    return Others(objects, taken, facts.quotas.room(namespace))


def marked(entry: Entry) -> bytes:
    """The mark of a Tool as it stands; empty of one that cannot be read."""
    tool = entry.resource
    if not isinstance(tool, Tool):
        return b""
    try:
        return mark_of(tool.spec)
    except ValueError:
        return b""
