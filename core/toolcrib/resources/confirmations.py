"""CallConfirmation: one call that waits for a person. The operator makes it; a person decides; it goes by itself.

It is not listed in `KINDS`: nobody writes it as a manifest, and it governs nothing. The registry seals tool, arguments and caller.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from toolcrib.resources.meta import WHOLE, DnsSubdomain, ListOf, Model, ObjectMeta, Rule

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
        max_length=8_192,
        description="The arguments: JSON in ASCII. Credentials, and values that the Tool's schema marks as secret, are "
        "***(N characters hidden).",
    )
    hidden_characters: Annotated[int, Field(ge=1, le=2_147_483_647), WHOLE] | None = Field(
        default=None, description="Characters of the arguments that are hidden. Absent: none."
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
    accepted_hidden_characters: Annotated[int, Field(ge=1, le=2_147_483_647), WHOLE] | None = Field(
        default=None,
        description="Repeats hiddenCharacters: by it a person confirms arguments that they do not see whole.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            " && ".join(
                f"self.{name} == oldSelf.{name}"
                for name in (
                    "tool", "agent", "issuer", "subject", "names", "arguments", "askedAt", "expiresAt", "seal",
                )
            )
            + " && (has(self.hiddenCharacters) ? self.hiddenCharacters : 0)"
            " == (has(oldSelf.hiddenCharacters) ? oldSelf.hiddenCharacters : 0)",
            "a call that waits cannot be changed: only spec.decision, spec.decidedBy and"
            " spec.acceptedHiddenCharacters can be set",
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
        # the models read what breaks these two: the replica that asked refuses it, and tells the agent
        Rule(
            "!has(self.acceptedHiddenCharacters) || has(self.decision)",
            "spec.acceptedHiddenCharacters is set with the decision",
        ),
        Rule(
            "!has(self.decision) || self.decision != 'Confirmed' || !has(self.hiddenCharacters)"
            " || (has(self.acceptedHiddenCharacters) && self.acceptedHiddenCharacters == self.hiddenCharacters)",
            "parts of the arguments are hidden: to confirm the call all the same, repeat spec.hiddenCharacters in"
            " spec.acceptedHiddenCharacters",
        ),
    )  # fmt: skip


class CallConfirmation(Model):
    """A CallConfirmation as it stands in the cluster."""

    api_version: str = ""
    kind: str = KIND
    metadata: ObjectMeta = Field(strict=False)
    spec: CallConfirmationSpec
