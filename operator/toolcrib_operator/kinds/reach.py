"""What there is for a binding to reach: which tools, and what its denials have matched. Pure, over one snapshot."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from toolcrib import authorizer
from toolcrib.names import is_reserved_scope
from toolcrib.resources.conditions import ConditionReason
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_operator.kinds.questions import Question
from toolcrib_operator.kinds.verdicts import Cause

MOST_ESCAPED = 16
"""Tools that are named of one binding."""


@dataclass(frozen=True, slots=True)
class DenialHistory:
    """What a binding's denials have matched since its last edit, and what they no longer match.

    `fired` are the entries that have matched a tool, as the status names them; `stopped` those of them that match none
    now; `escaped` the ids of tools that were denied and are not any more.
    """

    fired: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    escaped: tuple[str, ...] = ()

    @property
    def problem(self) -> Cause:
        """What the condition says."""
        if not self.stopped and not self.escaped:
            return Cause(ConditionReason.DENY_HOLDS)
        lines = [f"{tool_id} was denied and is not any more" for tool_id in self.escaped]
        lines += [f"tools.{entry} matched a tool and matches none now" for entry in self.stopped]
        return Cause(ConditionReason.DENY_STOPPED_MATCHING, "; ".join(lines))


@dataclass(frozen=True, slots=True)
class BindingReach:
    """What there is for a binding to reach: how many tools, what is odd about it; `held` where it denies."""

    matched: int
    questions: tuple[Question, ...] = ()
    held: DenialHistory | None = None


def wants_tools(binding: PublishedBinding) -> bool:
    """Whether it is there for tools; not if all that it grants are powers of the registry (`registry:*`), which no tool carries."""
    return not binding.scopes or not all(map(is_reserved_scope, binding.scopes))


def matched_tools(binding: PublishedBinding, snapshot: Snapshot) -> int:
    """How many active tools are within reach: those it grants, or those it denies where it only denies."""
    return len(matched_ids(binding, snapshot))


def matched_ids(binding: PublishedBinding, snapshot: Snapshot) -> list[str]:
    """The ids of those tools."""
    tools = snapshot.tools
    reaches = authorizer.matcher(binding)
    if not binding.scopes:
        return [tool_id for tool_id, tool in tools.items() if reaches(tool)]
    territory = None if binding.namespaces is None else frozenset(binding.namespaces)
    candidates = snapshot.candidates(binding.scopes, territory)
    if binding.servers is None and binding.allow is None and not binding.denies:
        return [i for i in candidates if tools[i].active]  # nothing else narrows it: a hundred times as fast
    return [i for i in candidates if reaches(tools[i])]


class Territories:
    """All tools by namespace, sorted out once a snapshot: many bindings ask for the tools of one namespace."""

    def __init__(self) -> None:
        self._of: Snapshot | None = None
        self._tools: defaultdict[str, list[PublishedTool]] = defaultdict(list)

    def tools_of(self, binding: PublishedBinding, snapshot: Snapshot) -> list[PublishedTool]:
        """Every tool of a binding's territory, whatever its state; none where nothing asks for one."""
        if not binding.denies:
            return []
        if binding.namespaces is None:
            return list(snapshot.tools.values())
        if self._of is not snapshot:
            self._of, self._tools = snapshot, defaultdict(list)
            for tool in snapshot.tools.values():
                self._tools[tool.namespace].append(tool)
        return [tool for namespace in binding.namespaces for tool in self._tools.get(namespace, ())]
