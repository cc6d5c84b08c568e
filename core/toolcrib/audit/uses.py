"""What the allowed calls of a decision log needed of the bindings: which entries of which binding, in which combination.

Calls that needed the same are counted together, so memory grows with what is different, not with the number of calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from toolcrib.audit.replay import Decided, Judged
from toolcrib.authorizer import Action, Given, givers, subject_key, subject_keys
from toolcrib.authorizer.bindings import CompiledBinding
from toolcrib.identity import Identity
from toolcrib.names import ToolPattern
from toolcrib.resources.tools import ScopeMatch
from toolcrib.wire.publish import PublishedBinding, PublishedTool


class Way(NamedTuple):
    """How one binding granted a call: one entry of each list is needed, of `scopes` those that the tool wants.

    `subjects` are places in the binding's list; `servers` and `names` are None where the binding has no such list.
    `names` are what would allow the tool by name: an entry without a wildcard as it is, for another the tool's own name.
    """

    uid: str
    subjects: frozenset[int]
    scopes: frozenset[str]
    servers: frozenset[str] | None
    names: frozenset[str] | None


@dataclass(slots=True, eq=False)
class Need:
    """Calls of one agent and tool that several ways allowed, or their scopes together (`all_of`)."""

    agent: str
    tool: str
    ways: tuple[Way, ...]
    all_of: frozenset[str] | None
    times: int = 0
    last: str = ""


@dataclass(slots=True)
class Asked:
    """Refusals of one tool and reason, and who asked."""

    agents: set[str] = field(default_factory=set)
    times: int = 0
    last: str = ""


@dataclass(slots=True, eq=False)
class Question:
    """What calls asked that were decided alike: all that a decision rests on, whatever else the policy holds.

    `bindings` are the caller's that can say anything of the tool. `decided` as it was recorded.
    """

    identity: Identity
    tool: PublishedTool
    bindings: tuple[PublishedBinding, ...]
    now: float
    decided: bool
    need: Need | None


class Uses:
    """Collects what calls needed.

    Attributes:
        needs: of calls that were allowed.
        questions: every different one that was asked by a call, of tools that exist.
        refused: tool and reason to who asked in vain.
        calls: how many were allowed by bindings.
    """

    def __init__(self) -> None:
        self.needs: list[Need] = []
        self.refused: dict[tuple[str, str], Asked] = {}
        self.calls = 0
        self._questions: dict[tuple[Any, ...], Question] = {}
        self._made: dict[tuple[Any, ...], Need] = {}

    @property
    def questions(self) -> Iterable[Question]:
        """In the order in which they were asked first."""
        return self._questions.values()

    def add(self, judged: Judged) -> None:
        """A decision of the log that was made again."""
        if judged.of is None:
            return
        record, ts = judged.record, str(judged.record["ts"])
        agent = judged.of.identity.label
        if judged.tool is None or record["action"] != Action.CALL.value:
            return
        allowed = bool(judged.recorded[0])
        if not allowed:
            self.refuse(judged.tool, str(judged.recorded[1]), agent, ts)
        question = self._question(judged.tool, judged.of, allowed=allowed)
        if question is None or (need := question.need) is None:
            return
        self.calls += 1
        need.times += 1
        need.last = max(need.last, ts)

    def refuse(self, tool: str, reason: str, agent: str, ts: str, times: int = 1) -> None:
        """Somebody asked for a tool in vain; equal refusals may be summed up in the log."""
        asked = self.refused.setdefault((tool, reason), Asked())
        asked.agents.add(agent)
        asked.times += times
        asked.last = max(asked.last, ts)

    def _question(self, name: str, of: Decided, *, allowed: bool) -> Question | None:
        tool = of.snapshot.governed(name)
        if tool is None:
            return None
        bindings = tuple(b.source for b in of.snapshot.policy.near(of.identity, tool.namespace).every)
        dates = [d for b in bindings for d in (b.not_before, b.expires_at) if d is not None]
        # between two dates of the bindings nothing changes by itself
        held = sum(d <= of.now for d in dates)
        # what it holds is kept, so that no other object can get one of these ids
        key = of.identity.cache_key, id(tool), tuple(map(id, bindings)), held, allowed
        question = self._questions.get(key)
        if question is None:
            need = self._need(tool, of) if allowed else None
            question = Question(of.identity, tool, bindings, of.now, allowed, need)
            self._questions[key] = question
        return question

    def _need(self, tool: PublishedTool, of: Decided) -> Need | None:
        """What the call needed; None where the token alone allowed it."""
        wanted, given = givers(of.identity, tool, of.snapshot.policy, of.now)
        if not given:
            return None
        ways = tuple(_way(each, of.identity, tool) for each in given)
        all_of = wanted if tool.scope_match is ScopeMatch.ALL else None
        key = of.identity.label, tool.tool_id, ways, all_of
        need = self._made.get(key)
        if need is None:
            need = self._made[key] = Need(*key)
            self.needs.append(need)
        return need


def _way(given: Given, identity: Identity, tool: PublishedTool) -> Way:
    b, keys = given.binding, set(subject_keys(identity))
    places = (i for i, subject in enumerate(b.source.subjects) if subject_key(subject) in keys)
    return Way(b.source.uid, frozenset(places), given.scopes, servers_of(b, tool), names_of(b, tool))


def servers_of(b: CompiledBinding, tool: PublishedTool) -> frozenset[str] | None:
    """The entries of `servers` that the tool's server is one of; None: the binding has no such list."""
    if b.source.servers is None:
        return None
    server = (tool.server or "").lower()
    meant = {server, f"{tool.namespace}/{server}"}
    return frozenset(entry for entry in b.source.servers if _lowered(entry) in meant)


def names_of(b: CompiledBinding, tool: PublishedTool) -> frozenset[str] | None:
    """What would allow the tool by name, within what does; None: the binding has no such list."""
    if b.source.allow is None or b.allow is None:
        return None
    return frozenset(
        exact(pattern, tool) if has_wildcard(text) else text
        for text, pattern in zip(b.source.allow, b.allow, strict=True)
        if pattern.matches(namespace=tool.namespace, server=tool.server, name=tool.name)
    )


def exact(pattern: ToolPattern, tool: PublishedTool) -> str:
    """The pattern as it means this tool alone, in as many parts."""
    if pattern.server is None:
        return tool.name
    if pattern.namespace is None:
        return f"{tool.server}:{tool.name}"
    return f"{tool.namespace}/{tool.server}:{tool.name}"


def has_wildcard(pattern: str) -> bool:
    """Whether a pattern may mean several names."""
    return "*" in pattern or "?" in pattern


def _lowered(entry: str) -> str:
    namespace, slash, server = entry.rpartition("/")
    return f"{namespace}{slash}{server.lower()}"
