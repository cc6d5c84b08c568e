"""Access review: what a subject sees and may call, who may call a tool, and why.

Pure: a snapshot and a moment go in. Every verdict is the authorizer's own (`decide`, `view_of`); nothing here decides.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from toolcrib import fallbacks
from toolcrib.access.answers import (
    Explanation,
    ReviewedSubject,
    ReviewedTool,
    Step,
    SubjectVerdict,
    WhatCan,
    WhoCan,
)
from toolcrib.access.notes import CONFIRMED_EACH_TIME, notes
from toolcrib.access.rules import Rules, moment
from toolcrib.access.subjects import (
    ACCOUNTS,
    IN_CLUSTER,
    Tokens,
    Who,
    assumes_scopes,
    identity_of,
    is_accounts_group,
    why_nobody,
)
from toolcrib.authorizer import Action, Considered, Decision, Order, Reason, concerned, considered, decide
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.view import EMPTY, AmbiguousName, View, view_of
from toolcrib.wire.publish import PublishedSubject, PublishedTool


class UnknownTool(LookupError):
    """No tool has that id or name; `.close` are those that are written much alike."""

    def __init__(self, text: str, close: tuple[str, ...]) -> None:
        self.close = close
        super().__init__(f"no tool {text!r} exists")


@dataclass(frozen=True)
class AccessReview:
    """Questions about one snapshot at one moment.

    Args:
        snapshot: the tools and bindings in effect, or those that would be.
        now: seconds since the epoch.
        tokens: what tokens are taken to carry.
        action: what the subject would do with the tools.
        revision: names the snapshot in answers.
        proposed: UIDs of bindings that are not applied, or not like this.
        predicted: whether the snapshot is one that would be.
        applied: the one in effect, if so: a subject that it knows is not taken for misspelt.
    """

    snapshot: Snapshot
    now: float
    tokens: Tokens = field(default_factory=Tokens)
    action: Action = Action.CALL
    revision: str = ""
    proposed: frozenset[str] = frozenset()
    predicted: bool = False
    applied: Snapshot | None = None
    rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", Rules(self.snapshot.policy, self.now, self.proposed))

    def identity(self, who: Who) -> Identity | None:
        """What a token of `who` proves; None: nothing."""
        return identity_of(who, self.snapshot, self.tokens)

    def decide(self, identity: Identity | None, tool: PublishedTool | None) -> Decision:
        """The authorizer's decision; for nobody it is none of what anonymous callers may do."""
        asked = None if identity is None else tool
        return decide(identity, asked, self.action, self.snapshot.policy, self.now)

    def view(self, identity: Identity | None) -> View:
        """What it sees; a review asks for subjects, and nobody is none, wherever anonymous callers may list."""
        return EMPTY if identity is None else view_of(identity, self.snapshot, self.now, self.action)

    def what_can(
        self,
        who: Who,
        *,
        hidden: bool = False,
        namespace: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> WhatCan:
        """The tools that `who` sees, and servers' resources and prompts, each with the rule that lets it.

        Args:
            who: a subject, its issuer settled.
            hidden: the other tools too, each with the rule that hides it.
            namespace: only tools of this one, and resources and prompts of its servers.
            after: only tools whose id comes later.
            limit: at most so many; `next_cursor` is then the last id, if there are more.
        """
        identity = self.identity(who)
        view = self.view(identity)
        there = self.snapshot if hidden else view
        known = {**there.tools, **there.parts}
        ids = sorted(i for i in known if i > after and namespace in (None, known[i].namespace))
        chosen = ids if limit is None else ids[:limit]
        names = {tool_id: name for name, tool_id in view.names.items()}
        return WhatCan(
            **self.head(who, identity, namespace),
            who=shown(who),
            action=self.action,
            visible=len(view.tools) + len(view.parts),
            tools=tuple(self.tool(identity, i, names.get(i), who) for i in chosen),
            ambiguous=tuple(sorted(view.ambiguous)),
            next_cursor=chosen[-1] if len(chosen) < len(ids) else None,
        )

    def who_can(self, tool: PublishedTool, *, after: str = "", limit: int | None = None) -> WhoCan:
        """The subjects that bindings name and that may act on `tool`, and those who would, were nothing in the way."""
        found = sorted(self._candidates(tool), key=order_of)
        rows: list[SubjectVerdict] = []
        more = False
        for who in found:
            if order_of(who) <= after:
                continue
            identity = self.identity(who)
            decision = self.decide(identity, tool)
            if not decision.allowed and not self._would(identity, tool, decision):
                continue
            if limit is not None and len(rows) == limit:
                more = True
                break
            rows.append(SubjectVerdict(**self._rule(who, identity, tool, decision), who=shown(who)))
        last = rows[-1].who if more else None
        return WhoCan(
            **self.head(None, None),
            tool_id=tool.tool_id,
            action=self.action,
            subjects=tuple(rows),
            next_cursor=None if last is None else f"{last.subject} {last.issuer or ''}",
        )

    def explain(self, who: Who, tool: PublishedTool) -> Explanation:
        """The order, step by step, as `decide` goes through it for this subject and tool."""
        identity = self.identity(who)
        decision = self.decide(identity, tool)
        weighed = () if identity is None else considered(identity, tool, self.snapshot.policy, self.now)
        view = self.view(identity) if decision.allowed or tool.fallback else EMPTY
        names = {i: n for n, i in view.names.items()} if decision.allowed else {}
        rule = self._rule(who, identity, tool, decision)
        head = self.head(who, identity)
        if tool.confirm and self.action is Action.CALL:
            head["notes"] = (*head["notes"], CONFIRMED_EACH_TIME)
        return Explanation(
            **head,
            **rule,
            who=shown(who),
            tool_id=tool.tool_id,
            name=names.get(tool.tool_id),
            action=self.action,
            steps=tuple(self._steps(who, identity, tool, decision, weighed, rule["rule"])),
            bindings=tuple(map(self.rules.considered, weighed)),
            fallbacks=tuple(
                self.tool(identity, each, who=who)
                for each in tool.fallback
                if fallbacks.problem(tool, each, self.snapshot.tools, view.tools.get(each)) is None
            ),
        )

    def find(self, text: str, who: Who | None = None) -> PublishedTool:
        """The tool that `text` means.

        An id, else what `who` calls by it, else a name that only one tool has (of several, that of the subject's own namespace).

        Raises:
            UnknownTool: there is none.
            AmbiguousName: several tools share the name.
        """
        tools = self.snapshot.tools
        if (exact := self.snapshot.governed(text)) is not None:
            return exact
        if who is not None and (meant := self.view(self.identity(who)).resolve(text)) is not None:
            return meant
        # of a hidden tool, too, an admin may say server:tool
        server, _, name = text.rpartition(":")
        named = [
            i
            for i in sorted(self.snapshot.by_name.get(name.lower(), ()))
            if not server or tools[i].server == server
        ]
        same = [i for i in named if tools[i].name == name] or named
        home = who.namespace if who is not None else None
        found = [i for i in same if tools[i].namespace == home] or same
        if len(found) == 1:
            return tools[found[0]]
        if found:
            raise AmbiguousName(text, tuple(found))
        known = {*tools, *(t.name for t in tools.values())}
        raise UnknownTool(text, tuple(difflib.get_close_matches(text, known, 3)))

    def subjects(self) -> list[Who]:
        """Every subject that a binding names, each once."""
        return list(_each_once(b.subjects for b in self.snapshot.bindings.values()))

    def tool(
        self, identity: Identity | None, tool_id: str, name: str | None = None, who: Who | None = None
    ) -> ReviewedTool:
        """One tool as this identity, of `who`, has it, there or not; `name` is the one by which it lists it."""
        tool = self.snapshot.governed(tool_id)
        decision = self.decide(identity, tool)
        return ReviewedTool(**self._rule(who, identity, tool, decision), tool_id=tool_id, name=name)

    def _rule(
        self, who: Who | None, identity: Identity | None, tool: PublishedTool | None, decision: Decision
    ) -> dict[str, Any]:
        if who is None or identity is not None:
            return self.rules.fields(identity, tool, decision)
        return self.rules.fields(identity, tool, decision, why_nobody(who, self.tokens))

    def _candidates(self, tool: PublishedTool) -> list[Who]:
        """Those named by a binding that has to do with the tool, and the members of a group of service accounts among them."""
        found = list(_each_once(b.subjects for b in concerned(tool, self.snapshot.policy)))
        groups = {w.name for w in found if w.kind is SubjectKind.GROUP}
        if not any(map(is_accounts_group, groups)):
            return found
        known = {w.key for w in found}
        return [*found, *(w for w in self.subjects() if w.key not in known and _implied(w) & groups)]

    def _would(self, identity: Identity | None, tool: PublishedTool, decision: Decision) -> bool:
        """Whether a denied subject has a binding that would otherwise grant it."""
        if identity is None or decision.reason is Reason.ACCOUNT_GONE:
            return True
        weighed = considered(identity, tool, self.snapshot.policy, self.now)
        return any(c.grants or c.shortfall is Reason.NOT_VALID_NOW for c in weighed)

    def _steps(
        self,
        who: Who,
        identity: Identity | None,
        tool: PublishedTool,
        decision: Decision,
        weighed: tuple[Considered, ...],
        rule: str,
    ) -> Iterator[Step]:
        failed = decision.reason.step
        policy = None if identity is None else identity.policy
        not_asked = {
            Order.GRANT: "the issuer's tokens decide by their scopes alone"
            if policy is ScopesPolicy.TOKEN
            else None,
            Order.TOKEN: "bindings alone decide about scopes" if policy is ScopesPolicy.BINDINGS else None,
        }
        denials = sum(c.binding.denies for c in weighed)
        passed = {
            Order.IDENTITY: "" if identity is None else f"a valid token of {_short(identity) or who}",
            Order.TOOL: f"its state is {tool.state.value}",
            Order.DENY: f"{denials} of {len(weighed)} binding(s) of this subject deny tools, none of them this one",
            Order.GRANT: rule if failed is None else f"bindings grant {', '.join(sorted(_given(weighed)))}",
            Order.TOKEN: ""
            if identity is None
            else f"it carries {', '.join(sorted(set(tool.scopes) & (identity.scopes or set())))}",
        }
        for step in Order:
            if failed is not None and step > failed:
                yield Step(step=step, title=step.title, verdict="not_reached", detail="")
            elif step is failed:
                yield Step(step=step, title=step.title, verdict="failed", detail=rule)
            elif (why := not_asked.get(step)) is not None:
                yield Step(step=step, title=step.title, verdict="not_asked", detail=why)
            else:
                yield Step(step=step, title=step.title, verdict="passed", detail=passed.get(step, ""))

    def head(
        self, who: Who | None, identity: Identity | None, namespace: str | None = None
    ) -> dict[str, Any]:
        """What every answer says of itself."""
        assumed = []
        if assumes_scopes(identity, self.tokens):
            assumed.append("the token carries every scope that its bindings ask for")
        if who is not None and who.kind in IN_CLUSTER and self.snapshot.accounts is None:
            assumed.append(f"the ServiceAccount {who.namespace}/{who.name} exists")
        return {
            "revision": self.revision,
            "at": moment(self.now),
            "predicted": self.predicted,
            "assumptions": tuple(assumed),
            "notes": notes(self.snapshot, self.tokens, who, identity, namespace, self.applied),
        }


def _short(identity: Identity) -> str:
    return "/".join(identity.service_account or ()) or identity.client or identity.subject


def shown(who: Who) -> ReviewedSubject:
    """A subject as answers name it."""
    return ReviewedSubject(
        subject=str(who), kind=who.kind.value, namespace=who.namespace, name=who.name, issuer=who.issuer
    )


def _each_once(lists: Iterable[Iterable[PublishedSubject]]) -> Iterator[Who]:
    seen = set()
    for several in lists:
        for subject in several:
            who = Who.of(subject)
            if who is not None and who.key not in seen:
                seen.add(who.key)
                yield who


def order_of(who: Who) -> str:
    """By which subjects are sorted, and continued from page to page."""
    return f"{who} {who.issuer or ''}"


def _given(weighed: tuple[Considered, ...]) -> set[str]:
    return {scope for c in weighed for scope in c.grants}


def _implied(who: Who) -> set[str]:
    """The groups of the cluster's issuer that its tokens belong to besides the one that is named."""
    if who.kind in IN_CLUSTER:
        return {ACCOUNTS, f"{ACCOUNTS}:{who.namespace}"}
    return {ACCOUNTS} if who.kind is SubjectKind.GROUP and is_accounts_group(who.name) else set()
