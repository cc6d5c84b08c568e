"""Calls that wait for a person's confirmation, on the admin channel: what replicas ask for, and what people decided."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from toolcrib.wire.model import Wire

MOST_CALLS = 1_000
"""Calls that may wait at one replica."""
MOST_ARGUMENTS = 8_192
"""Characters of arguments as a person is shown them: what cannot be shown whole cannot be confirmed."""


class CallDecision(StrEnum):
    """What a person said."""

    CONFIRMED = "Confirmed"
    REJECTED = "Rejected"


class ConfirmableCall(Wire):
    """One pending call. `seal` covers all fields but the decision's, so a carrier cannot change them."""

    id: str = Field(pattern="^[0-9a-f]{12}$")
    tool_id: str = Field(max_length=320)
    agent: str = Field(max_length=512, description="the caller as people know it")
    issuer: str = Field(max_length=2_048)
    subject: str = Field(max_length=2_048)
    names: tuple[str, ...] = Field(
        default=(),
        max_length=4,
        description="names by which the caller may be known; they cannot confirm the call",
    )
    arguments: str = Field(
        max_length=MOST_ARGUMENTS, description="as people see them: JSON in ASCII, secrets hidden"
    )
    hidden: int = Field(default=0, ge=0, description="characters of the arguments that people do not see")
    asked_at: int = Field(description="seconds since the epoch")
    expires_at: int = Field(description="seconds since the epoch")
    seal: str = Field(pattern="^[0-9a-f]{64}$")
    decision: CallDecision | None = None
    decided_by: str = Field(default="", max_length=1_024)
    accepted_hidden: int = Field(
        default=0,
        ge=0,
        description="hidden characters that the person accepted; confirming takes all of them",
    )

    @property
    def namespace(self) -> str:
        """Of the tool."""
        return self.tool_id.partition("/")[0]

    @property
    def key(self) -> str:
        """`namespace/id`, as commands name it."""
        return f"{self.namespace}/{self.id}"


class CallsTold(Wire):
    """What the operator tells each replica: all calls that wait, and how many replicas there are."""

    epoch: int = Field(ge=0, lt=1 << 63)
    replicas: int = Field(ge=0)
    calls: tuple[ConfirmableCall, ...] = Field(default=(), max_length=64 * MOST_CALLS)


class CallsReport(Wire):
    """What a replica answers: calls that it wants confirmed, and the ids of those that were made."""

    waiting: tuple[ConfirmableCall, ...] = ()
    used: tuple[str, ...] = ()


def is_caller(person: str, names: tuple[str, ...]) -> bool:
    """Return True if a user of the API server may be the caller itself.

    The server puts a prefix of any form before an issuer's names (`--oidc-username-prefix`: `oidc:`, `url#`, `corp-`), and
    tells it to nobody. So a name that ends with one of the caller's is the caller's.
    """
    return any(name and person.endswith(name) for name in names)
