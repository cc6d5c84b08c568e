"""Random policies that change, and who asks under them: what decisions are made of that are made again from a log.

    world = ReplayWorld(7)
    world.publish()       # the whole of it, then after each `change()` what has changed
    world.identity(), world.name(), world.moment()

Only `Random.random` is drawn from: its numbers are the same in every version of Python.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

import published
from published import CLUSTER, FAR, OAUTH
from toolcrib.identity import Identity, Issuer, ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.tools import ScopeMatch, ToolState
from toolcrib.wire.publish import (
    Publish,
    PublishedAccount,
    PublishedBinding,
    PublishedLimits,
    PublishedSubject,
    PublishedTool,
    Removed,
    Revision,
)

LOCAL = "https://local.example"
ISSUERS = (
    Issuer(issuer=CLUSTER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True),
    Issuer(issuer=OAUTH, audience=("toolcrib",)),
    Issuer(issuer=LOCAL, audience=("toolcrib",), scopes=ScopesPolicy.TOKEN),
)
NAMESPACES = ("team-a", "team-b", "shop", "lab")
SERVERS = (None, "github", "Web")
NAMES = ("read_file", "delete_repo", "grep", "add", "Query")
SCOPES = ("use", "read", "write", "vault:use", "registry:write")
PATTERNS = ("*", "read_*", "delete_*", "github:*", "*:grep", "add", "nothing")
GROUPS = ("ops", "dev", "guests", "nobody-names-it")
PEOPLE = ("bot", "ci", "planner")
START = 1_800_000_000
T = TypeVar("T")


class Draw:
    """Chances and choices."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def chance(self, share: float) -> bool:
        """True in that share of cases."""
        return self._random.random() < share

    def number(self, below: int) -> int:
        """From 0."""
        return int(self._random.random() * below)

    def one(self, of: Sequence[T]) -> T:
        """One of them."""
        return of[self.number(len(of))]

    def some(self, of: Sequence[T], share: float = 0.4, least: int = 0) -> tuple[T, ...]:
        """Each with that chance, in their order."""
        found = [item for item in of if self.chance(share)]
        while len(found) < least:
            found = list(dict.fromkeys([*found, self.one(of)]))
        return tuple(found)


class ReplayWorld:
    """Tools, bindings, accounts, and who asks.

    Attributes:
        draw: what all chances come from.
    """

    def __init__(self, seed: int, *, tools: int = 24, bindings: int = 14) -> None:
        self.draw = Draw(seed)
        self.revision = Revision(epoch=1, seq=1)
        self._count = 0
        self.labelled = dict.fromkeys(NAMESPACES, False)
        self.accounts = {
            (ns, name): f"uid-{ns}-{name}-0" for ns in NAMESPACES for name in self.draw.some(PEOPLE, 0.8)
        }
        self.tools: dict[str, PublishedTool] = {}
        self.bindings: dict[str, PublishedBinding] = {}
        for _ in range(tools):
            made = self._tool()
            self.tools[made.tool_id] = made
        for _ in range(bindings):
            binding = self._binding()
            self.bindings[binding.uid] = binding

    def publish(self) -> Publish:
        """All of it."""
        return Publish(
            to=self.revision,
            tools=tuple(self.tools.values()),
            bindings=tuple(self.bindings.values()),
            accounts=self._accounts(),
        )

    def change(self) -> Publish:
        """The world changes; what tells a replica of it: a step, or now and then another leader's whole snapshot."""
        before, kind = self.revision, self.draw.number(10)
        if len(self.bindings) > 20 and kind < 3:
            kind = 4  # as many go as come
        tools: dict[str, PublishedTool] = {}
        bindings: dict[str, PublishedBinding] = {}
        gone_tools: list[str] = []
        gone_bindings: list[str] = []
        accounts: list[PublishedAccount] = []
        if kind < 3 or not self.bindings:
            binding = self._suspension() if self.draw.chance(0.08) else self._binding()
            bindings[binding.uid] = binding
        elif kind == 3:
            old = self.bindings[self.draw.one(sorted(u for u, b in self.bindings.items() if not b.suspends))]
            bindings[old.uid] = self._binding(old)
        elif kind == 4 and len(self.bindings) > 6:
            gone_bindings.append(self.draw.one(sorted(self.bindings)))
        elif kind == 5:
            namespace = self.draw.one(NAMESPACES)
            self.labelled[namespace] = not self.labelled[namespace]
            bindings |= {b.uid: self._selected(b) for b in self.bindings.values() if _selects(b)}
        elif kind == 6 and len(self.tools) > 12:
            gone_tools.append(self.draw.one(sorted(self.tools)))
        elif kind == 7:
            who = self.draw.one(sorted(self.accounts))
            self._count += 1
            self.accounts[who] = f"uid-{who[0]}-{who[1]}-{self._count}"
            accounts.append(PublishedAccount(namespace=who[0], name=who[1], uid=self.accounts[who]))
        else:
            old_tool = self.tools[self.draw.one(sorted(self.tools))] if self.draw.chance(0.7) else None
            made = self._tool(old_tool)
            tools[made.tool_id] = made
        self.tools = {i: t for i, t in (self.tools | tools).items() if i not in gone_tools}
        self.bindings = {u: b for u, b in (self.bindings | bindings).items() if u not in gone_bindings}
        if self.draw.chance(0.05):
            self.revision = Revision(epoch=before.epoch + 1, seq=1)
            return self.publish()
        self.revision = Revision(epoch=before.epoch, seq=before.seq + 1)
        return Publish(
            base=before,
            to=self.revision,
            tools=tuple(tools.values()),
            bindings=tuple(bindings.values()),
            accounts=tuple(accounts) or None,
            removed=Removed(tools=tuple(gone_tools), bindings=tuple(gone_bindings)),
        )

    def identity(self) -> Identity:
        """Somebody: of the cluster, of a provider, or with a token that alone decides."""
        draw = self.draw
        dates: dict[str, Any] = {"expires_at": FAR if draw.chance(0.8) else self.moment() + draw.number(3)}
        kind = draw.number(3)
        if kind == 0:
            namespace, name = draw.one(NAMESPACES), draw.one(PEOPLE)
            uid = self.accounts.get((namespace, name)) if draw.chance(0.9) else "uid-of-before"
            return published.bot(namespace, name, account_uid=uid, **dates)
        name = draw.one(PEOPLE)
        scopes = frozenset(draw.some(SCOPES, 0.7))
        groups = frozenset(draw.some(GROUPS))
        if kind == 1:
            return published.client(name, scopes, groups=groups, **dates)
        return published.client(
            name, scopes, issuer=LOCAL, policy=ScopesPolicy.TOKEN, groups=groups, user=None, **dates
        )

    def name(self) -> str:
        """What may be a tool's id, its name, or nothing's."""
        kind = self.draw.number(10)
        if kind < 5:
            return self.draw.one(sorted(self.tools))
        return self.draw.one(NAMES) if kind < 9 else f"nothing-{self.draw.number(3)}"

    def moment(self) -> float:
        """A time at which dates of bindings and tokens begin or end, or a millisecond beside."""
        return START + self.draw.number(30) + self.draw.one((0.0, 0.0, -0.001, 0.0004, 0.5, 0.9996))

    def _accounts(self) -> tuple[PublishedAccount, ...]:
        return tuple(PublishedAccount(namespace=n, name=a, uid=u) for (n, a), u in self.accounts.items())

    def _tool(self, old: PublishedTool | None = None) -> PublishedTool:
        draw = self.draw
        self._count += 1
        state = draw.one((ToolState.ACTIVE, ToolState.ACTIVE, ToolState.DEPRECATED, ToolState.DISABLED))
        fields: dict[str, Any] = {
            "generation": 1 + (old.generation if old else 0),
            "scopes": draw.some(SCOPES[: 5 if draw.chance(0.2) else 3], 0.5, 1),
            "scope_match": ScopeMatch.ALL if draw.chance(0.3) else ScopeMatch.ANY,
            "state": state,
            "message": f"{self._count} is better" if state is ToolState.DEPRECATED else None,
            "replaced_by": draw.one((None, "grep")) if state is ToolState.DEPRECATED else None,
            "description": f"text {self._count}",
            "quarantined": draw.chance(0.1),
        }
        if old is not None:
            made = published.tool(old.tool_id, name=old.name, server=old.server, **fields)
        else:
            tool_id = f"{draw.one(NAMESPACES)}/tool-{self._count}"
            made = published.tool(tool_id, name=draw.one(NAMES), server=draw.one(SERVERS), **fields)
        # how digests are made is not what is decided
        mark = f"{self._count:064x}"
        return made.model_copy(update={"digest": f"sha256:{mark}", "route_digest": f"sha256:{mark[::-1]}"})

    def _binding(self, old: PublishedBinding | None = None) -> PublishedBinding:
        draw = self.draw
        self._count += 1
        namespaced = old.namespace is not None if old else draw.chance(0.6)
        name = old.name if old else f"grant-{self._count}"
        namespace = (old.namespace if old else draw.one(NAMESPACES)) if namespaced else None
        reach: dict[str, Any] = {}
        if not namespaced:
            lists = draw.chance(0.4)
            every = draw.chance(0.2)
            reach = {
                "namespaces": None if every else draw.some(NAMESPACES) if lists else self._found(),
                "lists_namespaces": lists and not every,
            }
        denies = draw.chance(0.25)
        begins = START + draw.number(30) if draw.chance(0.25) else None
        return published.binding(
            name,
            namespace,
            uid=old.uid if old else f"uid-{self._count}",
            generation=1 + (old.generation if old else 0),
            subjects=tuple(self._subject() for _ in range(1 + draw.number(3))),
            scopes=draw.some(SCOPES, 0.5, 0 if denies else 1),
            allow=draw.some(PATTERNS, 0.4) if draw.chance(0.3) else None,
            deny=draw.some(PATTERNS[1:], 0.2) if denies else (),
            deny_scopes=draw.some(SCOPES, 0.15) if denies else (),
            servers=draw.some(("github", "web"), 0.6) if draw.chance(0.2) else None,
            not_before=begins,
            expires_at=START + draw.number(30) + 0.25 * draw.number(2) if draw.chance(0.3) else None,
            limits=PublishedLimits(per_minute=3) if draw.chance(0.3) else None,
            **reach,
        )

    def _suspension(self) -> PublishedBinding:
        self._count += 1
        namespace, name = self.draw.one(NAMESPACES), self.draw.one(PEOPLE)
        return published.suspension(name, namespace, self._subject(), uid=f"uid-{self._count}")

    def _subject(self) -> PublishedSubject:
        draw = self.draw
        kind = draw.number(6)
        if kind > 2:
            return published.account(draw.one(NAMESPACES), draw.one(PEOPLE))
        issuer = draw.one((OAUTH, LOCAL))
        if kind == 0:
            return PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=issuer, client_id=draw.one(PEOPLE))
        if kind == 1:
            return PublishedSubject(kind=SubjectKind.USER, issuer=issuer, name=draw.one(PEOPLE))
        return PublishedSubject(kind=SubjectKind.GROUP, issuer=issuer, name=draw.one(GROUPS[:-1]))

    def _found(self) -> tuple[str, ...]:
        """The namespaces that have the label."""
        return tuple(name for name, has in self.labelled.items() if has)

    def _selected(self, binding: PublishedBinding) -> PublishedBinding:
        return binding.model_copy(update={"namespaces": self._found()})


def _selects(binding: PublishedBinding) -> bool:
    return binding.namespace is None and binding.namespaces is not None and not binding.lists_namespaces
