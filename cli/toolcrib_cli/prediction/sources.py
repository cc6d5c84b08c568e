"""Where `toolcrib access` gets its answers: worked out here from a cluster or a folder, or asked of a registry.

Each source answers with the same shapes (`toolcrib.access.answers`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter

from toolcrib.access import declared, subjects
from toolcrib.access.answers import Changes, Explanation, Review, WhatCan, WhoCan, WhoHolds
from toolcrib.access.changes import changes
from toolcrib.access.holders import who_holds
from toolcrib.access.notes import no_account, notes
from toolcrib.access.review import AccessReview, UnknownTool
from toolcrib.access.subjects import SubjectError, Tokens, Who
from toolcrib.view import AmbiguousName
from toolcrib_cli.client import RegistryClient
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.prediction.outcome import (
    Kept,
    NotUsed,
    Prediction,
    absent,
    folder_world,
    predict,
    read_files,
)
from toolcrib_cli.prediction.question import AccessQuestion
from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.binding import BINDINGS
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

_Answer = TypeVar("_Answer", bound=Review)
_PAGE = 2_000


class Source(Protocol):
    """Answers questions.

    `not_used` are objects that are not, or would not be, in effect; `doubted` are issuers whose groups of service accounts
    count for nothing, though one may be the cluster's.
    """

    question: AccessQuestion
    not_used: tuple[NotUsed, ...]
    doubted: tuple[str, ...]

    def what_can(self, subject: str, *, hidden: bool) -> WhatCan:
        """The tools of a subject."""

    def who_can(self, tool: str) -> WhoCan:
        """The subjects of a tool."""

    def who_holds(self, scope: str) -> WhoHolds:
        """The subjects of a scope."""

    def explain(self, subject: str, tool: str) -> Explanation:
        """Why, or why not."""

    def diff(self, subject: str | None) -> Changes:
        """What the manifests change; for one subject only, if given."""


@dataclass
class Here:
    """Worked out in this process, from objects that were read.

    Args:
        read: the world as it is; called once.
        where: names it in answers.
        accounts: whether it knows all service accounts.
        trusted: namespace labels that the operator trusts.
        cluster_issuer: the issuer of service accounts, for groups of them; empty: unknown, the one that bindings name is
            assumed.
        issuer_from: why that issuer is assumed; empty: it is known.
        issuer_said: it is known from anyone who asks, who may have mistyped it.
    """

    question: AccessQuestion
    read: Callable[[], World]
    where: str
    accounts: bool = True
    trusted: Sequence[str] = ()
    cluster_issuer: str = ""
    issuer_from: str = ""
    issuer_said: bool = False
    not_used: tuple[NotUsed, ...] = field(default=(), init=False)
    _reviews: tuple[AccessReview, AccessReview] | None = field(default=None, init=False)
    _kept: tuple[Kept, ...] = field(default=(), init=False)
    _world: World | None = field(default=None, init=False)
    doubted: tuple[str, ...] = field(default=(), init=False)
    _guessed: tuple[str, ...] = field(default=(), init=False)

    def what_can(self, subject: str, *, hidden: bool) -> WhatCan:
        """The tools of a subject."""
        review = self.review()
        who = self._who(subject)
        return self._told(review.what_can(who, hidden=hidden, namespace=self.question.namespace), who)

    def who_can(self, tool: str) -> WhoCan:
        """The subjects of a tool."""
        found = self._told(self.review().who_can(_found(self.review(), tool)))
        return found if self.accounts else declared.able(found, self.service_accounts())

    def who_holds(self, scope: str) -> WhoHolds:
        """The subjects of a scope."""
        found = self._told(who_holds(self.review(), scope, namespace=self.question.namespace))
        return found if self.accounts else declared.holding(found, self.service_accounts())

    def explain(self, subject: str, tool: str) -> Explanation:
        """Why, or why not."""
        who = self._who(subject)
        return self._told(self.review().explain(who, _found(self.review(), tool, who)), who)

    def diff(self, subject: str | None) -> Changes:
        """What the manifests change."""
        before, after = self._made()
        if subject is None:
            return self._told(changes(before, after))
        who = self._who(subject)
        found = self._told(changes(before, after, [who]), who)
        either, other = (notes(r.snapshot, r.tokens, who, r.identity(who)) for r in (before, after))
        both = (*found.notes, *(note for note in either if note in other))
        return found.model_copy(update={"notes": tuple(dict.fromkeys(both))})

    def _told(self, answer: _Answer, who: Who | None = None) -> _Answer:
        """With what an apply keeps and a guessed issuer among what is assumed, and a note where the cluster has no such
        account."""
        found = list(answer.notes)
        if who is not None and who.kind in subjects.IN_CLUSTER and self.accounts and self._world is not None:
            there = self._world.get(Ref(SERVICE_ACCOUNT, f"{who.namespace}/{who.name}"))
            found += [no_account(who)] if there is None else []
        if who is not None and who.kind in subjects.IN_CLUSTER and not self.accounts:
            gone = declared.missing(who.namespace, who.name, self.service_accounts())
            found += [gone] if gone else []
        kept = (*answer.assumptions, *self._guessed, *map(str, self._kept))
        return answer.model_copy(update={"assumptions": kept, "notes": tuple(dict.fromkeys(found))})

    def review(self) -> AccessReview:
        """Questions about the world as it would be."""
        return self._made()[1]

    def service_accounts(self) -> frozenset[str]:
        """`namespace/name` of every ServiceAccount that the cluster has, or that the manifests declare."""
        self._made()
        return frozenset() if self._world is None else frozenset(self._world.versions(SERVICE_ACCOUNT))

    def _who(self, text: str) -> Who:
        before, after = self._made()
        try:
            who = subjects.parse(text, self.question.issuer)
            try:
                return subjects.settled(who, after.snapshot, after.tokens)
            except SubjectError:  # the change may take away the only binding that names it
                return subjects.settled(who, before.snapshot, before.tokens)
        except SubjectError as error:
            hint = "--issuer https://…" if "issuer" in str(error) else ""
            raise CliError(str(error), hint=hint, code=Exit.USAGE) from error

    def _made(self) -> tuple[AccessReview, AccessReview]:
        if self._reviews is None:
            contents, world = self.question.contents(), self.read()
            pruned = absent(world, contents) if self.question.prune else ()
            found = predict(
                world,
                contents,
                (*self.question.delete, *pruned),
                trusted=self.trusted or LoopSettings.trusted_namespace_labels,
                accounts=self.accounts,
            )
            self.not_used, self._kept, self._world = found.not_used, found.kept, world
            self._reviews = self._of(found)
        return self._reviews

    def _of(self, found: Prediction) -> tuple[AccessReview, AccessReview]:
        q, now = self.question, time.time()
        issuer, self._guessed = self._issuer(found)
        tokens = Tokens(
            cluster_issuer=issuer,
            scopes=None if q.scopes is None else frozenset(q.scopes),
            groups=frozenset(q.groups),
            client=q.client,
        )
        before = AccessReview(found.before, now, tokens, q.action, self.where)
        predicted = bool(q.bindings or q.delete)
        after = AccessReview(
            found.after, now, tokens, q.action, self.where, found.changed, predicted, found.before
        )
        return before, after

    def _issuer(self, found: Prediction) -> tuple[str, tuple[str, ...]]:
        """The cluster's issuer, and what is assumed of it: something only where bindings name groups of its accounts."""
        named = sorted(subjects.accounts_issuers(found.before) | subjects.accounts_issuers(found.after))
        if not named:
            return self.cluster_issuer, ()
        if self.cluster_issuer and not self.issuer_from:
            return self.cluster_issuer, self._known(named)
        if not self.cluster_issuer and len(named) > 1:
            self.doubted = tuple(named)
            said = f"the cluster's issuer is not known, and bindings name {', '.join(named)}: no group of service accounts has members"
            return "", (f"{said} (--cluster-issuer says which it is)",)
        issuer = self.cluster_issuer or named[0]
        said = f"the cluster's issuer is {issuer}, {self.issuer_from or 'since bindings name it'}"
        if others := [i for i in named if i != issuer]:
            self.doubted = tuple(others)
            said += f"; groups of service accounts of {', '.join(others)} have no members"
        return issuer, (f"{said} (--cluster-issuer says which it is)",)

    def _known(self, named: Sequence[str]) -> tuple[str, ...]:
        """What is assumed where the issuer is known: that the groups of others, which bindings name, are a typo there."""
        issuer = self.cluster_issuer
        if not (others := [i for i in named if i != issuer]):
            return ()
        if issuer in named:
            return (
                f"the cluster's issuer is {issuer}; groups of service accounts of {', '.join(others)} have no members",
            )
        if self.issuer_said:
            self.doubted = tuple(others)
        said = f"bindings name groups of service accounts of {', '.join(others)}, not of {issuer}, the cluster's issuer"
        return (f"{said}: these have no members",)


@dataclass
class Asked:
    """Asked of a registry, as a holder of `registry:admin`."""

    question: AccessQuestion
    client: RegistryClient
    not_used: tuple[NotUsed, ...] = field(default=(), init=False)
    doubted: tuple[str, ...] = field(default=(), init=False)

    def what_can(self, subject: str, *, hidden: bool) -> WhatCan:
        """The tools of a subject."""
        return self._all(WhatCan, "tools", subject=subject, hidden=hidden)

    def who_can(self, tool: str) -> WhoCan:
        """The subjects of a tool."""
        return self._all(WhoCan, "subjects", tool=tool)

    def who_holds(self, scope: str) -> WhoHolds:
        """The subjects of a scope."""
        return self._all(WhoHolds, "holders", scope=scope)

    def explain(self, subject: str, tool: str) -> Explanation:
        """Why, or why not."""
        return TypeAdapter(Explanation).validate_python(self._ask({"subject": subject, "tool": tool}))

    def diff(self, subject: str | None) -> Changes:
        """What the bindings change."""
        if self.question.prune:
            raise CliError("--prune goes with --manifests or a cluster", code=Exit.USAGE)
        found = self._all(Changes, "subjects")
        if subject is None:
            return found
        try:
            asked = subjects.parse(subject, self.question.issuer)
        except SubjectError as error:
            raise CliError(str(error), code=Exit.USAGE) from error
        kept = [
            s
            for s in found.subjects
            if (w := subjects.parse(s.who.subject, s.who.issuer)).key == asked.key
            or (asked.issuer is None and (w.kind, w.name) == (asked.kind, asked.name) and w.issuer)
        ]
        return found.model_copy(update={"subjects": tuple(kept)})

    def _all(self, model: type[_Answer], rows: str, **asked: Any) -> _Answer:
        """Every page in one answer."""
        body = {**asked, "limit": _PAGE}
        found: dict[str, Any] = {}
        while True:
            page = self._ask(body)
            found = page if not found else {**found, rows: [*found[rows], *page[rows]]}
            if not (cursor := page.get("next_cursor")):
                return model.model_validate({**found, "next_cursor": None})
            body["cursor"] = cursor

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        q = self.question
        asked = {
            **body, "action": q.action.value, "namespace": q.namespace, "issuer": q.issuer, "client": q.client,
            "scopes": None if q.scopes is None else list(q.scopes), "groups": list(q.groups),
            "bindings": self._bindings(), "delete": list(q.delete),
        }  # fmt: skip
        try:
            answer: dict[str, Any] = self.client.post("/v1/access-review", asked)
        except CliError as error:
            if error.code is Exit.FAILED:  # which is how an answer that is no ends
                error.code = Exit.USAGE
            raise
        return answer

    def _bindings(self) -> list[dict[str, Any]]:
        found = []
        for item in (item for content in self.question.contents() for item in content.objects):
            if item.kind not in BINDINGS:
                raise CliError(
                    f"{item.file}:{item.line}: a registry answers about bindings alone, not about a {item.kind}",
                    hint="ask the cluster instead, by a kubeconfig",
                    code=Exit.USAGE,
                )
            metadata = {"name": item.name} | ({"namespace": item.namespace} if item.namespace else {})
            found.append({**{k: v for k, v in item.body.items() if k != "status"}, "metadata": metadata})
        return found


def cluster_source(
    question: AccessQuestion,
    kubeconfig: str | None,
    context: str | None,
    *,
    trusted: Sequence[str] = (),
    cluster_issuer: str | None = None,
) -> Here:
    """What a cluster holds, read with a kubeconfig; with the pod's own account where there is none.

    Raises:
        CliError: there is neither.
    """
    from toolcrib_cli import cluster

    if not cluster.can_connect(kubeconfig):
        place = f" {kubeconfig}" if kubeconfig else ""
        raise CliError(
            f"which cluster? there is no kubeconfig{place}",
            hint="start the local mode with `toolcrib up`, or specify --kubeconfig FILE, --manifests FOLDER or --registry URL",
            code=Exit.USAGE,
        )
    issuer = cluster_issuer or cluster.read_issuer(kubeconfig=kubeconfig, context=context)
    return Here(
        question,
        lambda: cluster.read_world(kubeconfig=kubeconfig, context=context),
        f"the cluster of context {context}" if context else "the cluster of the current context",
        trusted=trusted,
        cluster_issuer=issuer,
        issuer_said=bool(cluster_issuer),
    )


def folder_source(
    question: AccessQuestion,
    folders: Sequence[Path],
    *,
    trusted: Sequence[str] = (),
    cluster_issuer: str | None = None,
) -> Here:
    """Manifests as if they were all that there is; as the local mode would have them, but for a `cluster_issuer`."""
    from toolcrib_registry.identity.issuer.local import ISSUER

    where = ", ".join(map(str, folders))
    return Here(
        question,
        lambda: folder_world(read_files(folders, empty=question.prune)),
        f"manifests of {where}",
        accounts=False,
        trusted=trusted,
        cluster_issuer=cluster_issuer or ISSUER,
        issuer_from="" if cluster_issuer else "as in the local mode",
        issuer_said=bool(cluster_issuer),
    )


def _found(review: AccessReview, text: str, who: Who | None = None) -> Any:
    try:
        return review.find(text, who)
    except UnknownTool as error:
        every = "list every tool: `toolcrib access what-can SUBJECT --hidden`"
        hint = f"did you mean {' or '.join(error.close)}?" if error.close else every
        raise CliError(str(error), hint=hint, code=Exit.NOT_PERMITTED) from error
    except AmbiguousName as error:
        raise CliError(
            f"several tools are called {text}",
            hint=f"specify one of {', '.join(error.tool_ids)}",
            code=Exit.USAGE,
        ) from error
