"""What an assessment finds: whether the object is used, what is published of it, and why not."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.errors import Finding
from toolcrib.lint.weaknesses import Weakness
from toolcrib.resources.conditions import ConditionReason
from toolcrib.wire.imports import ServerWanted
from toolcrib.wire.publish import (
    Candidate,
    PublishedAccount,
    PublishedBinding,
    PublishedServer,
    PublishedTool,
)
from toolcrib_operator.objects import Ref

Published = PublishedTool | PublishedServer | PublishedBinding | PublishedAccount


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something is not as asked for; an empty message means the reason's general meaning."""

    reason: ConditionReason
    message: str = ""


@dataclass(frozen=True, slots=True)
class Reached:
    """Whether a backend can be reached (None: nobody knows), and why.

    `settled` is False where one result alone says so, which may be chance.
    """

    value: bool | None
    cause: Cause
    settled: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is published of an object, and why it is not used, if it is not. Kinds say more."""

    published: Published | None
    refusal: Cause | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """What was found of the candidate of a tool: either `made`, or a `refusal`."""

    canary: Ref
    """The ToolCanary that it is of: the oldest of the tool's."""
    refusal: Cause | None = None
    made: Candidate | None = None
    approval: Cause | None = None
    """Whether the candidate is approved; None: it needs no approval."""


@dataclass(frozen=True, slots=True)
class ToolVerdict:
    """`published` is None exactly when there is a `refusal`. `service` and `credential` keep Ready false, not the tool out.

    `endpoints` is what the EndpointSlices of its Service say; None where they are not asked. `weaknesses` make it hard to
    find, and change nothing else.
    """

    published: PublishedTool | None
    refusal: Cause | None = None
    service: Cause | None = None
    credential: Cause | None = None
    endpoints: Reached | None = None
    weaknesses: tuple[Weakness, ...] = ()
    approval: Cause | None = None
    """Whether the tool is as it was approved; None: it needs no approval."""
    tried: Tried | None = None
    """What a ToolCanary offers in its place."""


@dataclass(frozen=True, slots=True)
class ServerVerdict:
    """What is published of a ToolServer: its resources and prompts. `lacking` keeps Ready false.

    Its tools carry the way to it themselves.

    `wanted` is what a replica is asked to watch; None: it is not to be contacted.
    """

    published: PublishedServer | None = None
    refusal: Cause | None = None
    lacking: Cause | None = None
    wanted: ServerWanted | None = None


@dataclass(frozen=True, slots=True)
class BindingVerdict:
    """A refused binding grants nothing; `published` then is None, or holds its denials alone. Times: seconds.

    `policies_seen` names the admission policies that were read last when it began to wait; empty: none were; None: it
    does not wait.
    """

    published: PublishedBinding | None
    refusal: Cause | None = None
    policies_seen: str | None = None

    def dates(self, now: float) -> ConditionReason:
        """EXPIRED, NOT_YET_VALID or IN_FORCE."""
        b = self.published
        if b is not None and b.expires_at is not None and b.expires_at <= now:
            return ConditionReason.EXPIRED
        if b is not None and b.not_before is not None and now < b.not_before:
            return ConditionReason.NOT_YET_VALID
        return ConditionReason.IN_FORCE

    def next_change(self, now: float) -> float | None:
        """When the dates will say something else, if ever."""
        b = self.published
        times = () if b is None else (b.not_before, b.expires_at)
        return min((t for t in times if t is not None and t > now), default=None)


@dataclass(frozen=True, slots=True)
class Run:
    """What becomes of an Agent's `spec.run`: it is run, or there is a `refusal`.

    `digest` is of all that says what is run, `admitted` whether its author was allowed to write it (None: not known yet).
    `stops`: what runs already ends.
    """

    digest: str
    admitted: bool | None
    refusal: Cause | None = None
    stops: bool = False


@dataclass(frozen=True, slots=True)
class AgentVerdict(BindingVerdict):
    """What is published of an Agent is its suspension. `run` is None where the operator runs nothing of it.

    `known` is False where the object cannot be read or its assessment failed: what runs stays.
    """

    run: Run | None = None
    known: bool = True


AnyVerdict = Verdict | ToolVerdict | ServerVerdict | BindingVerdict


def invalid(findings: tuple[Finding, ...]) -> Cause:
    """All findings in one message."""
    return Cause(ConditionReason.INVALID, "; ".join(map(str, findings)))
