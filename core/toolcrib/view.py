"""The view: the exact set of tools an identity may see now, and the names it knows them by.

Built from decisions alone. A bare name means the tool of the caller's own namespace, else the only one of that
name among those it may see in any state; otherwise it is ambiguous (DESIGN §4, Names).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from toolcrib.authorizer import Action, Policy, decide, is_valid, next_change, next_validity, reach
from toolcrib.identity import Identity, ScopesPolicy
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

    @property
    def _listed(self) -> Mapping[str, str]:
        cached: Mapping[str, str] | None = self.__dict__.get("_listed_names")
        if cached is None:
            cached = {tool_id: name for name, tool_id in self.names.items()}
            self.__dict__["_listed_names"] = cached
        return cached


EMPTY = View(tools={}, names={}, ambiguous={}, valid_until=math.inf, digest=hashlib.sha256(b"").hexdigest())


def view_of(identity: Identity | None, snapshot: Snapshot, now: float, action: Action = Action.LIST) -> View:
    """Everything `identity` may see at `now`; empty where in doubt."""
    policy = snapshot.policy
    if identity is None:
        if not policy.anonymous_list:
            return EMPTY
        listed = {
            i: snapshot.tools[i]
            for i in sorted(snapshot.tools)
            if decide(None, snapshot.tools[i], action, policy, now)
        }
        return _view(listed, listed, None, math.inf)
    if not is_valid(identity, now):
        return replace(EMPTY, valid_until=next_validity(identity, now))
    reachable = {
        i: snapshot.tools[i]
        for i in sorted(_candidates(identity, snapshot, policy))
        if reach(identity, snapshot.tools[i], policy, now)
    }
    visible = {i: t for i, t in reachable.items() if decide(identity, t, action, policy, now)}
    return _view(visible, reachable, identity.namespace, next_change(identity, policy, now))


def _candidates(identity: Identity, snapshot: Snapshot, policy: Policy) -> set[str]:
    """A superset of what steps 3 to 5 can allow: tools that carry a scope which could be granted, where it could."""
    if identity.policy is ScopesPolicy.TOKEN:
        return snapshot.candidates(identity.scopes or (), None)
    found: set[str] = set()
    for b in policy.of(identity):
        if b.scopes:
            found |= snapshot.candidates(b.scopes, b.namespaces)
    return found


def _view(
    visible: Mapping[str, PublishedTool],
    reachable: Mapping[str, PublishedTool],
    home: str | None,
    until: float,
) -> View:
    sharing: dict[str, list[PublishedTool]] = {}
    for tool in reachable.values():
        sharing.setdefault(tool.name, []).append(tool)
    names: dict[str, str] = {}
    ambiguous: dict[str, tuple[str, ...]] = {}
    displaced: list[PublishedTool] = []
    for name, tools in sharing.items():
        owner = _owner(tools, home)
        shown = [t for t in tools if t.tool_id in visible]
        if owner is not None and owner.tool_id in visible:
            names[name] = owner.tool_id
        elif owner is None and shown:
            ambiguous[name] = tuple(t.tool_id for t in shown)
        displaced.extend(t for t in shown if t is not owner)
    for tool in displaced:
        names[_free_name(tool, sharing, names)] = tool.tool_id
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


def _owner(tools: list[PublishedTool], home: str | None) -> PublishedTool | None:
    if len(tools) == 1:
        return tools[0]
    own = [t for t in tools if t.namespace == home]
    return own[0] if len(own) == 1 else None


def _free_name(
    tool: PublishedTool, sharing: Mapping[str, Iterable[PublishedTool]], taken: Mapping[str, str]
) -> str:
    """`namespace.name`; where that is no single tool either, with the server or the object's name between."""
    object_name = tool.tool_id.split("/", 1)[1]
    alone = sum(t.namespace == tool.namespace for t in sharing[tool.name]) == 1
    options = [f"{tool.namespace}.{tool.name}"] if alone else []
    options += [f"{tool.namespace}.{tool.server}.{tool.name}"] if tool.server else []
    options += [f"{tool.namespace}.{object_name}", tool.tool_id]
    return next(o for o in options if o not in taken and o not in sharing)
