"""From a ToolServer, its server's list and the Tools that it owns to what is applied and deleted.

A list that came empty or shrank by more than half may be an accident of the server: what it lacks is kept for
`spec.import.shrinkGrace`. What the ToolServer no longer asks for, and definitions that no Tool can hold, go at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from toolcrib import names
from toolcrib.imports.definitions import Imported, Known, LeftOut, imported
from toolcrib.resources.servers import Import, ToolServer
from toolcrib.wire.imports import ListedTool, ServerList

TWICE = "the server lists two tools of this name."
TAKEN = "another Tool of this namespace has the object name {!r}. Delete or rename it."
NAME_TAKEN = (
    "the Tool {!r} has the name {!r} at this server. Delete it, or exclude the tool in spec.import.exclude."
)
NO_ROOM = "the namespace's quota of tools is full. Delete tools, or ask an administrator for a larger quota."


@dataclass(frozen=True, slots=True)
class Standing:
    """A Tool that the ToolServer owns: its name at the server, and the mark of what stands there."""

    tool: str
    mark: bytes


@dataclass(frozen=True, slots=True)
class Others:
    """Tools of the namespace that the ToolServer does not own.

    Attributes:
        objects: their `metadata.name`.
        names: the name that agents see to the object, of those that name this server.
        room: how many more Tools the namespace's quota admits; None: it has no bound.
    """

    objects: Collection[str] = ()
    names: Mapping[str, str] | None = None
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, by `metadata.name`.

    Attributes:
        apply: Tools that are new or have changed.
        delete: Tools that go.
        held: Tools that the list lacks and that are kept, since it shrank.
        left_out: of the list.
        imported: Tools that there are once this is done, without the held ones.
        listed: tools of the list that the ToolServer asks for.
    """

    apply: tuple[Imported, ...] = ()
    delete: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    imported: int = 0
    listed: int = 0

    @property
    def shrunk(self) -> bool:
        """Whether the list came empty or shrank by more than half."""
        return bool(self.held)


def plan(
    server: ToolServer,
    listed: ServerList,
    standing: Mapping[str, Standing],
    others: Others | None = None,
    *,
    patient: bool = True,
    known: Known | None = None,
) -> Plan:
    """What makes the Tools what the ToolServer and its list say.

    Args:
        server: the object as it stands in the cluster, with its uid.
        listed: what its server has.
        standing: the Tools that it owns, by `metadata.name`.
        others: the other Tools of the namespace.
        patient: whether what a shrunken list lacks is kept; False once `shrinkGrace` has passed.
        known: what was found of definitions before.
    """
    others, import_ = others or Others(), server.spec.import_
    wanted = [each for each in listed.tools if asked_for(import_, each.name)]
    unusable = [each for each in listed.unusable if not each.name or asked_for(import_, each.name)]
    found, left_out = _found(server, listed, wanted, {} if known is None else known)
    found, further = _apart(found, standing, others)
    keep = {each.object_name for each in found}
    there = {each.name for each in wanted} | {each.name for each in unusable}
    relevant = {name: old for name, old in standing.items() if asked_for(import_, old.tool)}
    missing = {name for name, old in relevant.items() if old.tool not in there}
    held = missing if patient and 2 * (len(wanted) + len(unusable)) < len(relevant) else set()
    said = [LeftOut(each.name, each.reason) for each in unusable]
    return Plan(
        apply=tuple(e for e in found if _differs(e, standing.get(e.object_name))),
        delete=tuple(sorted(standing.keys() - keep - held)),
        held=tuple(sorted(held)),
        left_out=tuple(sorted((*left_out, *further, *said), key=lambda left: left.tool)),
        imported=len(found),
        listed=len(wanted) + len(unusable),
    )


def asked_for(import_: Import, tool: str) -> bool:
    """Whether the ToolServer asks for a tool of that name."""
    return any(names.glob_matches(p, tool) for p in import_.include) and not any(
        names.glob_matches(p, tool) for p in import_.exclude
    )


def _found(
    server: ToolServer, listed: ServerList, wanted: list[ListedTool], known: Known
) -> tuple[list[Imported], list[LeftOut]]:
    """The Tools of a list, each name once, in order; the others with the reason."""
    counts = Counter(d.name for d in wanted)
    found, left_out = [], [LeftOut(name, TWICE) for name, count in counts.items() if count > 1]
    objects: dict[str, str] = {}
    seen: dict[str, str] = {}
    for definition in sorted(wanted, key=lambda d: d.name):
        if counts[definition.name] > 1:
            continue
        made = imported(server, definition, known, listed.instructions)
        if isinstance(made, LeftOut):
            left_out.append(made)
        elif (other := objects.get(made.object_name) or seen.get(made.name)) is not None:
            left_out.append(LeftOut(made.tool, f"its Tool would have the name of that of {other[:80]!r}."))
        else:
            objects[made.object_name] = seen[made.name] = made.tool
            found.append(made)
    return found, left_out


def _apart(
    found: list[Imported], standing: Mapping[str, Standing], others: Others
) -> tuple[list[Imported], list[LeftOut]]:
    """Without those that another Tool stands in the way of, and those for which there is no room."""
    kept, left_out = [], []
    room, taken, named = others.room, set(others.objects), others.names or {}
    for each in found:
        reason = None
        if each.object_name in standing:
            pass
        elif each.object_name in taken:
            reason = TAKEN.format(each.object_name)
        elif each.name in named:
            reason = NAME_TAKEN.format(named[each.name], each.name)
        elif room is not None and room <= 0:
            reason = NO_ROOM
        elif room is not None:
            room -= 1
        if reason is None:
            kept.append(each)
        else:
            left_out.append(LeftOut(each.tool, reason, passing=True))
    return kept, left_out


def _differs(each: Imported, old: Standing | None) -> bool:
    return old is None or old.mark != each.mark
