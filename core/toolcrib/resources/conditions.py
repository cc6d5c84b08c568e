"""Conditions: one shape, and one function that sets them. Their reasons are in `reasons`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

from toolcrib.resources.meta import Model
from toolcrib.resources.reasons import MEANINGS as MEANINGS
from toolcrib.resources.reasons import NEXT_STEPS as NEXT_STEPS
from toolcrib.resources.reasons import ConditionReason as ConditionReason
from toolcrib.text import truncate

Status = Literal["True", "False", "Unknown"]
MAX_MESSAGE = 1_024


class Condition(Model):
    """One observation of an object's state, after `metav1.Condition`."""

    type: str = Field(max_length=316, description="What is observed.")
    status: Status = Field(description="True, False or Unknown.")
    reason: str = Field(
        max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", description="Why, as one word."
    )
    message: str = Field(max_length=32768, description="Why, for people.")
    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation this was seen at."
    )
    last_transition_time: str = Field(
        json_schema_extra={"format": "date-time"}, description="When status last changed."
    )


Conditions = Annotated[
    tuple[Condition, ...],
    Field(
        max_length=16,
        strict=False,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]
"""The conditions of an object, one of each type."""


def said(reason: ConditionReason) -> str:
    """What a reason says without a message of its own: its meaning, and what to do."""
    return " ".join(filter(None, (MEANINGS[reason], NEXT_STEPS.get(reason))))


def timestamp(now: float) -> str:
    """`now` (seconds since the epoch) as Kubernetes writes times: UTC, whole seconds."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(
    kind: str, status: bool | None, reason: ConditionReason, message: str = "", *, generation: int, now: float
) -> Condition:
    """A new observation; an empty message becomes what the reason says."""
    return Condition(
        type=kind,
        status="Unknown" if status is None else "True" if status else "False",
        reason=reason.value,
        message=truncate(message or said(reason), MAX_MESSAGE),
        observed_generation=generation,
        last_transition_time=timestamp(now),
    )


def merge(old: Iterable[Condition], new: Iterable[Condition]) -> tuple[Condition, ...]:
    """`new`, keeping the transition time of every condition whose status did not change."""
    before = {c.type: c for c in old}
    merged = []
    for c in new:
        was = before.get(c.type)
        if was is not None and was.status == c.status:
            c = c.model_copy(update={"last_transition_time": was.last_transition_time})
        merged.append(c)
    return tuple(merged)
