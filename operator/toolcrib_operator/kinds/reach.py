"""What there is for a binding to reach: which tools, and what its denials have matched. Pure, over one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from toolcrib import authorizer
from toolcrib.names import is_reserved_scope
from toolcrib.resources import mistakes
from toolcrib.resources.conditions import ConditionReason, said
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_operator.kinds.questions import Question
from toolcrib_operator.kinds.verdicts import Cause

MOST_ESCAPED = 16
"""Tools that are named of one binding."""
MOST_SCOPES = 1_000
"""Different scopes in a binding's reach, above which none is looked for that may be meant: 8 ms a thousand."""


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
        lines = [f"{tool_id} was denied and no longer is" for tool_id in self.escaped]
        lines += [f"tools.{entry} matched a tool before and matches none now" for entry in self.stopped]
        return Cause(ConditionReason.DENY_STOPPED_MATCHING, "; ".join(lines))


@dataclass(frozen=True, slots=True)
class BindingReach:
    """What there is for a binding to reach: how many tools, `match` in words, what is odd about it; `held` where it denies."""

    matched: int
    match: Cause
    questions: tuple[Question, ...] = ()
    held: DenialHistory | None = None


def wants_tools(binding: PublishedBinding) -> bool:
    """Whether it is there for tools; not if all that it grants are powers of the registry (`registry:*`), which no tool carries."""
    return not binding.scopes or not all(map(is_reserved_scope, binding.scopes))


def matched_tools(binding: PublishedBinding, snapshot: Snapshot) -> int:
    """How many active tools are within reach: those it grants, or those it denies where it only denies."""
    return len(matched_ids(binding, snapshot))


def matches_parts(binding: PublishedBinding, snapshot: Snapshot) -> bool:
    """Whether resources or prompts of a server are within reach."""
    reaches = authorizer.matcher(binding)
    return any(map(reaches, snapshot.parts.values()))


def match(binding: PublishedBinding, matched: int, near: str = "") -> Cause:
    """What the condition MatchesNothing says; `near` are scopes that may be meant (`near_scopes`)."""
    if not wants_tools(binding):
        return Cause(ConditionReason.POWERS_ALONE)
    if matched:
        return Cause(ConditionReason.MATCHES)
    reason = ConditionReason.MATCHES_NOTHING
    return Cause(reason, f"{said(reason)} {near}" if near else "")


def near_scopes(binding: PublishedBinding, snapshot: Snapshot, carried: frozenset[str]) -> str:
    """The scopes of a binding that no tool of its namespaces carries, each with one that may be meant; empty if there is none.

    Only a scope by which the binding would reach an active tool is named: no other tool shows in its status.

    Args:
        carried: the scopes of the tools of its namespaces.
    """
    if len(carried) > MOST_SCOPES:
        return ""
    missing = (s for s in binding.scopes if s not in carried and not is_reserved_scope(s))
    meant = ((scope, next(_reaching(binding, snapshot, scope, carried), None)) for scope in missing)
    return " ".join(f"No tool there has the scope {s!r}; did you mean {m!r}?" for s, m in meant if m)


def _reaching(
    binding: PublishedBinding, snapshot: Snapshot, scope: str, carried: frozenset[str]
) -> Iterator[str]:
    for meant in _near(scope, carried):
        if matched_ids(binding.model_copy(update={"scopes": (meant,)}), snapshot):
            yield meant


@lru_cache(maxsize=1_024)
def _near(scope: str, carried: frozenset[str]) -> list[str]:
    return mistakes.near(scope, sorted(carried))


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
        self._scopes: defaultdict[str, set[str]] = defaultdict(set)

    def tools_of(self, binding: PublishedBinding, snapshot: Snapshot) -> list[PublishedTool]:
        """Every tool of a binding's territory, whatever its state, and what stands for resources and prompts.

        None where nothing asks for one.
        """
        if not binding.denies:
            return []
        if binding.namespaces is None:
            return [*snapshot.tools.values(), *snapshot.parts.values()]
        self._sort(snapshot)
        return [tool for namespace in binding.namespaces for tool in self._tools.get(namespace, ())]

    def scopes_of(self, binding: PublishedBinding, snapshot: Snapshot) -> frozenset[str]:
        """Every scope that a tool of the binding's namespaces carries."""
        self._sort(snapshot)
        namespaces = self._scopes if binding.namespaces is None else binding.namespaces
        return frozenset().union(*(self._scopes.get(namespace, ()) for namespace in namespaces))

    def _sort(self, snapshot: Snapshot) -> None:
        if self._of is snapshot:
            return
        self._of, self._tools, self._scopes = snapshot, defaultdict(list), defaultdict(set)
        for tool in (*snapshot.tools.values(), *snapshot.parts.values()):
            self._tools[tool.namespace].append(tool)
        for namespace, scope in snapshot.by_scope:
            self._scopes[namespace].add(scope)
        for part in snapshot.parts.values():
            self._scopes[part.namespace].update(part.scopes)
