"""Answers where manifests, and no cluster, say which service accounts there are: one that they lack is not counted."""

from __future__ import annotations

from collections.abc import Collection

from toolcrib.access.answers import Changes, Explanation, ReviewedSubject, WhatCan, WhoCan, WhoHolds
from toolcrib.access.notes import meant
from toolcrib.access.subjects import IN_CLUSTER
from toolcrib.authorizer import Reason
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.conditions import ConditionReason

AnyAnswer = WhatCan | WhoCan | WhoHolds | Explanation | Changes


def told(answer: AnyAnswer, declared: Collection[str]) -> AnyAnswer:
    """The same: no missing account is counted, and an answer about one has a note.

    Args:
        declared: every ServiceAccount, `namespace/name`.
    """
    if isinstance(answer, WhoCan):
        return able(answer, declared)
    if isinstance(answer, WhoHolds):
        return holding(answer, declared)
    if isinstance(answer, Changes) or SubjectKind(answer.who.kind) not in IN_CLUSTER:
        return answer
    said = missing(answer.who.namespace, answer.who.name, declared)
    return answer.model_copy(update={"notes": (*answer.notes, said)}) if said else answer


def missing(namespace: str | None, name: str, declared: Collection[str]) -> str:
    """That there is no such service account, in the words of the condition, and whom it may mean; empty: there may be one.

    As the condition judges it, one is missing only where its namespace declares others.

    Args:
        declared: every ServiceAccount, `namespace/name`.
    """
    key = f"{namespace}/{name}"
    if key in declared or not any(known.startswith(f"{namespace}/") for known in declared):
        return ""
    return f"there is no ServiceAccount {key}{meant(key, sorted(declared))}"


def holding(answer: WhoHolds, declared: Collection[str]) -> WhoHolds:
    """The same, in which no missing account holds the scope."""
    rows = [
        holder.model_copy(update={"holds": False, "state": "account_gone", "detail": said})
        if (said := _missing(holder.who, declared))
        else holder
        for holder in answer.holders
    ]
    return answer.model_copy(update={"holders": tuple(rows)})


def able(answer: WhoCan, declared: Collection[str]) -> WhoCan:
    """The same, in which no missing account may do anything."""
    gone = {
        "allowed": False,
        "reason": Reason.ACCOUNT_GONE,
        "step": Reason.ACCOUNT_GONE.step,
        "binding": None,
    }
    rows = [
        row.model_copy(update={**gone, "scopes": (), "rule": said})
        if (said := _missing(row.who, declared))
        else row
        for row in answer.subjects
    ]
    return answer.model_copy(update={"subjects": tuple(rows)})


def _missing(who: ReviewedSubject, declared: Collection[str]) -> str:
    if SubjectKind(who.kind) not in IN_CLUSTER:
        return ""
    said = missing(who.namespace, who.name, declared)
    return said and f"{ConditionReason.SUBJECT_NOT_FOUND}: {said}"
