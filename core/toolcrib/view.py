"""The view: the exact set of tools an identity may see now, and the names it knows them by.

Built from decisions alone. Of the tools of one name that the caller can reach in any state, one holds the bare name:
that of the caller's own namespace; else the only one from namespaces that its bindings name; else the only one of all;
else none, and the name is ambiguous. The first of these groups that has a tool decides: where it has several, none
holds the name. All others are listed by tool id. Nothing is remembered (issue 13, B.1; decision 0016).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from toolcrib import model_names
from toolcrib.authorizer import (
    Action,
    Policy,
    Question,
    caller_refused,
    decide,
    next_change,
    reach,
    tool_refused,
)
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.names import is_reserved_scope
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import PublishedTool


class AmbiguousName(LookupError):
    """A bare name that several visible tools share; `.tool_ids` are theirs."""

    def __init__(self, name: str, tool_ids: tuple[str, ...]) -> None:
        self.name = name
        self.tool_ids = tool_ids
        super().__init__(f"{name!r} names several tools: {', '.join(tool_ids)}")


@dataclass(frozen=True)
class View:
    """The visible tools (id → tool, sorted by id) and how their names resolve.

    `names` maps every listed name to a tool id; `ambiguous` bare names to the ids that share them. `valid_until`
    is the moment at which the clock alone may change the view. `digest` identifies the content.
    """

    tools: Mapping[str, PublishedTool]
    names: Mapping[str, str]
    ambiguous: Mapping[str, tuple[str, ...]]
    valid_until: float
    digest: str

    def resolve(self, name: str) -> PublishedTool | None:
        """The visible tool that `name` means: a listed name or a tool id. None: unknown or not visible.

        Raises:
            AmbiguousName: several visible tools share the bare name.
        """
        found = self.tools.get(name)
        if found is not None:
            return found
        listed = self.names.get(name)
        if listed is not None:
            return self.tools.get(listed)
        several = self.ambiguous.get(name)
        if several is not None:
            raise AmbiguousName(name, several)
        return None

    def listed_name(self, tool_id: str) -> str:
        """The name under which `GET /` lists the tool."""
        return self._listed[tool_id]

    def model_name(self, tool_id: str) -> str:
        """The name of the tool for models; no other visible tool has it."""
        listed = self._listed[tool_id]
        alone = model_names.model_name(listed, tool_id)
        return self._models[listed] if model_names.is_marked(alone) else alone

    @cached_property
    def _listed(self) -> Mapping[str, str]:
        return {tool_id: name for name, tool_id in self.names.items()}

    @cached_property
    def _models(self) -> Mapping[str, str]:
        return model_names.model_names(self.names)


EMPTY = View(tools={}, names={}, ambiguous={}, valid_until=math.inf, digest=hashlib.sha256(b"").hexdigest())


def view_of(identity: Identity | None, snapshot: Snapshot, now: float, action: Action = Action.LIST) -> View:
    """Everything `identity` may see at `now`; empty where in doubt."""
    policy = snapshot.policy
    if identity is None:
        if not policy.anonymous_list:
            return EMPTY
        # every tool is reachable to them: a disabled one keeps its name, as it does for callers with an identity
        every = {i: snapshot.tools[i] for i in sorted(snapshot.tools)}
        listed = {i: tool for i, tool in every.items() if decide(None, tool, action, policy, now)}
        return _view(listed, every, _Near(), math.inf)
    if caller_refused(identity, policy, now) is not None:
        return replace(EMPTY, valid_until=next_change(identity, policy, now))
    reachable: dict[str, PublishedTool] = {}
    visible: dict[str, PublishedTool] = {}
    for i in sorted(_candidates(identity, snapshot, policy)):
        q = Question(identity, snapshot.tools[i], action, policy, now)
        if reach(q):
            reachable[i] = snapshot.tools[i]
            if tool_refused(q) is None:
                visible[i] = snapshot.tools[i]
    near = _Near(identity.namespace, named_namespaces(identity, policy, now))
    return _view(visible, reachable, near, next_change(identity, policy, now))


def view_work(identity: Identity | None, snapshot: Snapshot) -> int:
    """What the time of `view_of` grows with: tools, times the bindings and patterns that are held against each."""
    if identity is None:
        return len(snapshot.tools) if snapshot.policy.anonymous_list else 0
    policy, work = snapshot.policy, len(snapshot.policy.of(identity))
    here = Counter(snapshot.tools[i].namespace for i in _candidates(identity, snapshot, policy))
    for namespace, tools in here.items():
        near = policy.near(identity, namespace).every
        work += tools * (1 + sum(1 + len(b.source.allow or ()) + len(b.source.deny) for b in near))
    return work


def _candidates(identity: Identity, snapshot: Snapshot, policy: Policy) -> set[str]:
    """A superset of what steps 3 to 5 can allow: tools that carry a scope which could be granted, where it could."""
    if identity.policy is ScopesPolicy.TOKEN:
        return snapshot.candidates(identity.scopes or (), None)
    # each scope of a namespace once, however many bindings grant it there
    granted: dict[frozenset[str] | None, set[str]] = {}
    for b in policy.of(identity):
        if b.scopes:
            granted.setdefault(b.namespaces, set()).update(b.scopes)
    found: set[str] = set()
    for namespaces, scopes in granted.items():
        found |= snapshot.candidates(scopes, namespaces)
    return found


def named_namespaces(identity: Identity, policy: Policy, now: float) -> frozenset[str]:
    """The namespaces that bindings of a valid identity name: an AgentScopeBinding its own, a cluster binding those of
    its list. Only bindings that grant scopes over tools to this token now; a selector names nothing.

    Tools of these namespaces come first where names are shared; nothing is allowed by it.
    """
    if identity.policy is ScopesPolicy.TOKEN:
        return frozenset()
    found: set[str] = set()
    for b in policy.of(identity):
        given = {s for s in b.scopes if not is_reserved_scope(s)}
        if identity.policy is ScopesPolicy.INTERSECTION:
            given &= identity.scopes or frozenset()
        if given and b.valid(now) and (b.source.namespace is not None or b.source.lists_namespaces):
            found |= b.namespaces or frozenset()
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Near:
    """The namespaces whose tools come first where a name is shared."""

    home: str | None = None
    named: frozenset[str] = frozenset()

    def holder(self, sharing: list[PublishedTool]) -> PublishedTool | None:
        """Which of the tools of one name holds the bare name; None: it is ambiguous."""
        if len(sharing) == 1:
            return sharing[0]
        for first in (
            [t for t in sharing if t.namespace == self.home],
            [t for t in sharing if t.namespace in self.named],
            sharing,
        ):
            if first:
                return first[0] if len(first) == 1 else None
        return None


def _view(
    visible: Mapping[str, PublishedTool],
    reachable: Mapping[str, PublishedTool],
    near: _Near,
    until: float,
) -> View:
    sharing: dict[str, list[PublishedTool]] = {}
    for tool in reachable.values():
        sharing.setdefault(tool.name, []).append(tool)
    names: dict[str, str] = {}
    ambiguous: dict[str, tuple[str, ...]] = {}
    for name, tools in sharing.items():
        holder = near.holder(tools)
        shown = [t for t in tools if t.tool_id in visible]
        if holder is None and shown:
            ambiguous[name] = tuple(t.tool_id for t in shown)
        for tool in shown:
            names[name if tool is holder else tool.tool_id] = tool.tool_id
    content = "\n".join(_line(name, visible[tool_id]) for name, tool_id in sorted(names.items()))
    return View(
        tools=visible,
        names=names,
        ambiguous=ambiguous,
        valid_until=until,
        digest=hashlib.sha256(content.encode()).hexdigest(),
    )


def _line(name: str, tool: PublishedTool) -> str:
    """All that somebody who sees the tool may be shown of it."""
    life = (tool.state.value, tool.replaced_by, tool.message)
    return f"{name} {tool.tool_id} {tool.digest} {tool.route_digest} {life!r}"
