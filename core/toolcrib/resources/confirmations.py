"""CallConfirmation: one call that waits for a person. The operator makes it; a person decides; it goes by itself.

It is not listed in `KINDS`: nobody writes it as a manifest, and it governs nothing. The registry seals tool, arguments and caller.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from toolcrib.resources.meta import DnsSubdomain, ListOf, Model, ObjectMeta, Rule

KIND, PLURAL, SINGULAR, SHORT = "CallConfirmation", "callconfirmations", "callconfirmation", "cc"
DECISION = r"^(Confirmed|Rejected)$"


class CallConfirmationSpec(Model):
    """The call, and what a person decided."""

    tool: DnsSubdomain = Field(description="The Tool, in the same namespace.")
    agent: str = Field(max_length=512, description="The caller, as people know it.")
    issuer: str = Field(max_length=2_048, description="The issuer of the caller's token.")
    subject: str = Field(max_length=2_048, description="The caller, by its token.")
    names: Annotated[tuple[Annotated[str, Field(max_length=2_048)], ...], ListOf(1, 4, "atomic")] = Field(
        description="Names by which the API server may know the caller. They cannot confirm the call."
    )
    arguments: str = Field(
        max_length=8_192, description="The arguments: JSON in ASCII. What looks like a secret is ***."
    )
    asked_at: str = Field(
        max_length=20, json_schema_extra={"format": "date-time"}, description="When it was asked for."
    )
    expires_at: str = Field(
        max_length=20,
        json_schema_extra={"format": "date-time"},
        description="Until when it can be confirmed and made.",
    )
    seal: str = Field(
        pattern="^[0-9a-f]{64}$",
        max_length=64,
        description="By which a registry replica knows what it asked for.",
    )
    decision: str | None = Field(
        default=None,
        pattern=DECISION,
        max_length=16,
        description="Confirmed or Rejected. Writing it takes the verb confirm on the Tool. It is final.",
    )
    decided_by: str | None = Field(
        default=None, max_length=1_024, description="Who decided, as the API server knows them."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            " && ".join(
                f"self.{name} == oldSelf.{name}"
                for name in (
                    "tool", "agent", "issuer", "subject", "names", "arguments", "askedAt", "expiresAt", "seal",
                )
            ),
            "a call that waits cannot be changed: only spec.decision and spec.decidedBy can be set",
        ),
        Rule(
            "!has(oldSelf.decision) || (has(self.decision) && self.decision == oldSelf.decision"
            " && has(self.decidedBy) && self.decidedBy == oldSelf.decidedBy)",
            "the decision is final",
        ),
        Rule(
            "has(self.decision) == has(self.decidedBy)",
            "spec.decision and spec.decidedBy go together",
            lambda s: (s.decision is None) == (s.decided_by is None),
        ),
    )  # fmt: skip


class CallConfirmation(Model):
    """A CallConfirmation as it stands in the cluster."""

    api_version: str = ""
    kind: str = KIND
    metadata: ObjectMeta = Field(strict=False)
    spec: CallConfirmationSpec
