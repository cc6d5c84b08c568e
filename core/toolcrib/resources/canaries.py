"""ToolCanary: another definition of a tool, tried with a share of its callers."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from toolcrib.canary.statistics import LOOKS
from toolcrib.resources import durations
from toolcrib.resources.conditions import Conditions
from toolcrib.resources.meta import DnsSubdomain, ListOf, Model, ObjectMeta, Rule
from toolcrib.resources.tools import DIGEST

MIN_DURATION, MAX_DURATION = 60.0, 90 * 24 * 3600.0
OUTCOME = r"^(TooFewCalls|Worse|Better|NoDifference)$"

Count = Annotated[int, Field(ge=0, le=(1 << 53) - 1)]


class CandidateDefinition(Model):
    """What the chosen callers read in the place of the tool's own definition."""

    title: str | None = Field(default=None, min_length=1, max_length=256, description="Another title.")
    description: str | None = Field(
        default=None, min_length=1, max_length=4096, description="Another description."
    )
    examples: (
        Annotated[tuple[Annotated[str, Field(min_length=1, max_length=512)], ...], ListOf(1, 16, "atomic")]
        | None
    ) = Field(default=None, description="Other sample requests.")
    replacement: DnsSubdomain | None = Field(
        default=None,
        description="Another Tool of this namespace: its definition and its backend, under this tool's name and scopes. Only"
        " callers who may use both get it.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.replacement) != (has(self.title) || has(self.description) || has(self.examples))",
            "set replacement, or at least one of title, description and examples",
            lambda c: (
                (c.replacement is not None)
                != any(text is not None for text in (c.title, c.description, c.examples))
            ),
        ),
    )


class ToolCanarySpec(Model):
    """A trial: of which tool, with how many callers, until when, and what ends it early."""

    tool: DnsSubdomain = Field(
        description="The Tool object of this namespace. One canary at a time: the oldest."
    )
    candidate: CandidateDefinition = Field(description="The definition to try.")
    share: int = Field(default=10, ge=1, le=50, description="Percent of the callers that get the candidate.")
    guard: int = Field(
        default=2,
        ge=0,
        le=50,
        description="By how many percentage points more calls may fail with the candidate. Clearly more, and it is rolled back.",
    )
    duration: str = Field(
        default="168h",
        pattern=durations.DURATION,
        max_length=9,
        description="How long it lasts, 1m to 2160h. After each fifth of it the operator looks at the numbers.",
    )
    approved_digest: str | None = Field(
        default=None,
        pattern=DIGEST,
        max_length=71,
        description="status.approvalDigest, where the Tool's approval is Manual. Writing it needs the verb approve on the Tool.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "duration(self.duration) >= duration('1m') && duration(self.duration) <= duration('2160h')",
            "duration must be between 1m and 2160h",
            lambda c: MIN_DURATION <= durations.seconds(c.duration) <= MAX_DURATION,
        ),
        Rule(
            "self.candidate == oldSelf.candidate && self.tool == oldSelf.tool && self.share == oldSelf.share"
            " && self.guard == oldSelf.guard && self.duration == oldSelf.duration",
            "a canary does not change while it runs, but for approvedDigest: delete it and create another",
        ),
        Rule(
            "!has(self.candidate.replacement) || self.candidate.replacement != self.tool",
            "replacement must be another tool",
            lambda c: c.candidate.replacement != c.tool,
        ),
    )


class SideTotals(Model):
    """What the callers of one side did so far."""

    selected: Count = Field(default=0, description="Definitions asked for by name.")
    called: Count = Field(
        default=0, description="Calls that ended well, or failed by the tool or its arguments."
    )
    failed: Count = Field(default=0, description="Of these, those that failed.")
    corrected: Count = Field(
        default=0, description="Calls that were ok after the same caller's arguments had been invalid."
    )


class CanaryLook(Model):
    """The numbers at one of the five looks, and what they say."""

    at: str = Field(max_length=64, json_schema_extra={"format": "date-time"}, description="When.")
    outcome: str = Field(
        pattern=OUTCOME, max_length=16, description="TooFewCalls, Worse, Better or NoDifference."
    )
    stable: SideTotals = Field(description="With the tool's own definition.")
    candidate: SideTotals = Field(description="With the candidate.")


class ReplicaTotals(Model):
    """What one replica had counted at the last look: from there the next operator goes on."""

    replica: str = Field(max_length=2048, description="Its name.")
    stable: SideTotals = Field(description="With the tool's own definition.")
    candidate: SideTotals = Field(description="With the candidate.")


class ToolCanaryStatus(Model):
    """What the operator observed."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation that the operator assessed."
    )
    candidate_digest: str | None = Field(
        default=None, max_length=80, description="sha256 of the definition that the chosen callers read."
    )
    approval_digest: str | None = Field(
        default=None,
        max_length=80,
        description="What spec.approvedDigest must be; only where the Tool's approval is Manual.",
    )
    started: str | None = Field(
        default=None,
        max_length=64,
        json_schema_extra={"format": "date-time"},
        description="When the first callers got the candidate.",
    )
    looks: Annotated[tuple[CanaryLook, ...], ListOf(0, LOOKS, "atomic")] = Field(
        default=(), description="The looks so far."
    )
    replicas: Annotated[tuple[ReplicaTotals, ...], ListOf(0, 256, "atomic")] = Field(
        default=(), description="What each replica had counted at the last look."
    )
    result: str | None = Field(
        default=None, pattern=OUTCOME, max_length=16, description="What the trial says; absent while it runs."
    )
    conditions: Conditions = Field(default=(), description="Ready, Accepted, Approved, RolledBack.")


class ToolCanary(Model):
    """A ToolCanary object as it stands in the cluster or in a manifest."""

    api_version: str = ""
    kind: str = "ToolCanary"
    metadata: ObjectMeta = Field(strict=False)
    spec: ToolCanarySpec
    status: ToolCanaryStatus | None = None

    @property
    def namespace(self) -> str:
        """Its own, and the tool's."""
        return self.metadata.namespace or "default"
