"""The view: the exact set of tools an identity may see now, and the names it knows them by.

Built from decisions alone. Of the tools of one name that the caller can reach in any state, one holds the bare name:
that of the caller's own namespace; else the only one from namespaces that its bindings name; else the only one of all;
else none, and the name is ambiguous. The first of these groups that has a tool decides: where it has several, none
holds the name. All others are listed by tool id. Nothing is remembered (issue 13, B.1; decision 0016).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import is_, itemgetter

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
from toolcrib.wire.publish import PublishedBinding, PublishedTool


class AmbiguousName(LookupError):
    """A bare name that several visible tools share; `.tool_ids` are theirs."""

    def __init__(self, name: str, tool_ids: tuple[str, ...]) -> None:
        self.name = name
        self.tool_ids = tool_ids
        super().__init__(f"{name!r} matches several tools: {', '.join(tool_ids)}")


@dataclass(frozen=True)
class View:
    """The visible tools (id → tool, sorted by id) and how their names resolve.

    `names` maps every listed name to a tool id; `ambiguous` bare names, and `server:tool`, to the ids that share them. `valid_until`
    is the moment at which the clock alone may change the view. `digest` identifies the content. `parts` are what stands for
    the resources and prompts of servers that may be used, by id.
    """

    tools: Mapping[str, PublishedTool]
    names: Mapping[str, str]
    ambiguous: Mapping[str, tuple[str, ...]]
    valid_until: float
    digest: str
    parts: Mapping[str, PublishedTool] = field(default_factory=dict)

    def resolve(self, name: str) -> PublishedTool | None:
        """The visible tool that `name` means: a listed name, a tool id, or `server:tool`. None: unknown or not visible.

        Raises:
            AmbiguousName: several visible tools share the bare name, or `server:tool`.
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
        return self._of_servers.get(name) if ":" in name else None

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
    def _of_servers(self) -> Mapping[str, PublishedTool]:
        """`server:tool` → the tool; those that are not in `ambiguous` mean one."""
        return {f"{tool.server}:{tool.name}": tool for tool in self.tools.values() if tool.server is not None}

    @cached_property
    def _models(self) -> Mapping[str, str]:
        return model_names.model_names(self.names)


EMPTY = View(tools={}, names={}, ambiguous={}, valid_until=math.inf, digest=hashlib.sha256(b"").hexdigest())


def view_of(identity: Identity | None, snapshot: Snapshot, now: float, action: Action = Action.LIST) -> View:
    """Everything `identity` may see at `now`; empty where in doubt."""
    return ViewMaker(identity, action).of(snapshot, now)


def shown(
    identity: Identity, tool: PublishedTool, snapshot: Snapshot, now: float, action: Action = Action.LIST
) -> PublishedTool:
    """What stands for a tool that `identity` may see: itself, or the candidate of its trial.

    A candidate that is made of another tool is shown only to those who may see that one too: a trial narrows, it never widens.
    """
    trial = tool.candidate
    if trial is None or not trial.chooses(identity.issuer, identity.subject):
        return tool
    if trial.replacement is not None:
        other = snapshot.tools.get(trial.replacement)
        if other is None or not decide(identity, other, action, snapshot.policy, now).allowed:
            return tool
    return trial.tool


@dataclass(frozen=True, slots=True)
class _Judged:
    """What was found of a tool."""

    tool: PublishedTool
    reachable: bool
    visible: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """What was found of a namespace's tools, by their ids, and the bindings that said so."""

    bindings: tuple[PublishedBinding, ...]
    judged: dict[str, _Judged]


class ViewMaker:
    """Makes the view of one identity, of one snapshot after another: what has not changed since is not judged again.

    So a namespace that changes without a pause holds up the judging of its own tools alone. Used from one thread at a time.
    """

    def __init__(self, identity: Identity | None, action: Action = Action.LIST) -> None:
        self.identity, self._action = identity, action
        self._since, self._until = math.inf, -math.inf
        self._places: dict[str, _Place] = {}
        self.behind = False
        """Whether tools were left out of the latest view, since there was more to judge than it was given."""

    def of(self, snapshot: Snapshot, now: float, work: float = math.inf) -> View:
        """Everything that may be seen at `now`, or what `work` is enough for; in the unit of `view_work`.

        Namespaces in which little has changed come first. A view that lacks tools is valid for a second.
        """
        identity, policy = self.identity, snapshot.policy
        self.behind = False
        if identity is None:
            return _anonymous(snapshot, now, self._action)
        until = next_change(identity, policy, now)
        if caller_refused(identity, policy, now) is not None:
            return replace(EMPTY, valid_until=until)
        reachable: dict[str, PublishedTool] = {}
        visible: dict[str, PublishedTool] = {}
        for i, judged in self._judge(identity, snapshot, now, work):
            if judged.reachable:
                reachable[i] = judged.tool
                if judged.visible:
                    visible[i] = shown(identity, judged.tool, snapshot, now, self._action)
        self._since, self._until = now, until
        near = _Near(identity.namespace, named_namespaces(identity, policy, now))
        parts = {
            i: part
            for i, part in snapshot.parts.items()
            if decide(identity, part, self._action, policy, now).allowed
        }
        return _view(
            visible, reachable, near, min(until, now + _AGAIN_SECONDS) if self.behind else until, parts
        )

    def _judge(
        self, identity: Identity, snapshot: Snapshot, now: float, work: float
    ) -> list[tuple[str, _Judged]]:
        """All candidates that `work` is enough for, in the order of their ids."""
        policy, in_time = snapshot.policy, self._since <= now < self._until
        candidates: dict[str, list[str]] = {}
        for i in _candidates(identity, snapshot, policy):
            candidates.setdefault(snapshot.tools[i].namespace, []).append(i)
        places: dict[str, _Place] = {}
        due: list[tuple[int, str, list[str]]] = []
        left: list[tuple[str, _Judged]] = []
        for namespace, ids in candidates.items():
            bindings = tuple(b.source for b in policy.near(identity, namespace).every)
            before = self._places.get(namespace)
            same = before is not None and in_time and _same(before.bindings, bindings)
            known = before.judged if before is not None and same else {}
            kept = {i: k for i in ids if (k := known.get(i)) is not None and k.tool is snapshot.tools[i]}
            places[namespace] = _Place(bindings, kept)
            if missing := [i for i in ids if i not in kept]:
                due.append((_patterns(bindings), namespace, missing))
        for each, namespace, missing in sorted(due, key=lambda d: (d[0] * len(d[2]), d[1])):
            judged = places[namespace].judged
            for i in missing:
                work -= each
                if work < 0:
                    # it keeps its name: else another tool would be called by it meanwhile
                    left.append((i, _Judged(snapshot.tools[i], reachable=True, visible=False)))
                    continue
                q = Question(identity, snapshot.tools[i], self._action, policy, now)
                within = bool(reach(q))
                judged[i] = _Judged(snapshot.tools[i], within, within and tool_refused(q) is None)
        self._places, self.behind = places, bool(left)
        found = chain.from_iterable(place.judged.items() for place in places.values())
        return sorted(chain(found, left), key=itemgetter(0))


_AGAIN_SECONDS = 1.0


def _anonymous(snapshot: Snapshot, now: float, action: Action) -> View:
    if not snapshot.policy.anonymous_list:
        return EMPTY
    # every tool is reachable to them: a disabled one keeps its name, as it does for callers with an identity
    every = {i: snapshot.tools[i] for i in sorted(snapshot.tools)}
    listed = {i: tool for i, tool in every.items() if decide(None, tool, action, snapshot.policy, now)}
    return _view(listed, every, _Near(), math.inf)


def _same(one: tuple[PublishedBinding, ...], other: tuple[PublishedBinding, ...]) -> bool:
    """Whether they are the very same objects: a binding that changed is another one."""
    return len(one) == len(other) and all(map(is_, one, other))


def _patterns(bindings: Iterable[PublishedBinding]) -> int:
    """What it takes to hold a tool against these."""
    return 1 + sum(1 + len(b.allow or ()) + len(b.deny) for b in bindings)


def view_work(identity: Identity | None, snapshot: Snapshot, enough: float = math.inf) -> int:
    """What the time of `view_of` grows with: tools, times the bindings and patterns that are held against each.

    Where it is clearly more than `enough`, a number above that is all that is found out.
    """
    if identity is None:
        return len(snapshot.tools) if snapshot.policy.anonymous_list else 0
    policy = snapshot.policy
    least: dict[str, int] = {}
    for namespaces, scopes in _granted(identity, policy):
        for namespace in snapshot.namespaces if namespaces is None else namespaces:
            most = max((len(snapshot.by_scope.get((namespace, s), ())) for s in scopes), default=0)
            least[namespace] = max(least.get(namespace, 0), most)
    if (found := sum(least.values())) > enough:
        return found
    work = len(policy.of(identity)) + len(snapshot.parts)
    here = Counter(snapshot.tools[i].namespace for i in _candidates(identity, snapshot, policy))
    for namespace, tools in here.items():
        work += tools * _patterns(b.source for b in policy.near(identity, namespace).every)
    return work


def _candidates(identity: Identity, snapshot: Snapshot, policy: Policy) -> set[str]:
    """A superset of what steps 3 to 5 can allow: tools that carry a scope which could be granted, where it could."""
    found: set[str] = set()
    for namespaces, scopes in _granted(identity, policy):
        found |= snapshot.candidates(scopes, namespaces)
    return found


def _granted(identity: Identity, policy: Policy) -> Iterable[tuple[frozenset[str] | None, Collection[str]]]:
    """Scopes that could be granted, and where (None: everywhere); each once in a place, however many bindings grant it."""
    if identity.policy is ScopesPolicy.TOKEN:
        return [(None, identity.scopes or ())]
    granted: dict[frozenset[str] | None, set[str]] = {}
    for b in policy.of(identity):
        if b.scopes:
            granted.setdefault(b.namespaces, set()).update(b.scopes)
    return granted.items()


def named_namespaces(identity: Identity, policy: Policy, now: float) -> frozenset[str]:
    """The namespaces that bindings of a valid identity name.

    An AgentScopeBinding names its own, a cluster binding those of its list. Only bindings that grant scopes over tools to
    this token now; a selector names nothing.

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
    parts: Mapping[str, PublishedTool] | None = None,
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
        if len(tools) > 1 and shown:
            ambiguous |= _servers_that_share(name, tools, visible)
        for tool in shown:
            names[name if tool is holder else tool.tool_id] = tool.tool_id
    lines = [_line(name, visible[tool_id]) for name, tool_id in sorted(names.items())]
    lines += [_line(i, part) for i, part in sorted((parts or {}).items())]
    content = "\n".join(lines)
    return View(
        tools=visible,
        names=names,
        ambiguous=ambiguous,
        valid_until=until,
        digest=hashlib.sha256(content.encode()).hexdigest(),
        parts=parts or {},
    )


def _servers_that_share(
    name: str, tools: list[PublishedTool], visible: Mapping[str, PublishedTool]
) -> dict[str, tuple[str, ...]]:
    """`server:tool` of servers in several namespaces → the ids that are visible; disabled tools keep such names, too."""
    of: dict[str, list[str]] = {}
    for tool in tools:
        if tool.server is not None:
            of.setdefault(f"{tool.server}:{name}", []).append(tool.tool_id)
    shown = {key: tuple(i for i in ids if i in visible) for key, ids in of.items() if len(ids) > 1}
    return {key: ids for key, ids in shown.items() if ids}


def _line(name: str, tool: PublishedTool) -> str:
    """All that somebody who sees the tool may be shown of it."""
    life = (tool.state.value, tool.replaced_by, tool.message and message_mark(tool.message))
    return f"{name} {tool.tool_id} {tool.digest} {tool.route_digest} {life!r}"


_MARK = re.compile("sha256:[0-9a-f]{64}")


def message_mark(message: str) -> str:
    """What stands for a tool's message in a view's digest, and for itself: a decision log has it in the message's place."""
    return message if _MARK.fullmatch(message) else f"sha256:{hashlib.sha256(message.encode()).hexdigest()}"
