"""Every error that core raises.

ToolcribError
├── InvalidManifest          a manifest the models refuse; carries one Finding a problem
├── SchemaUnsafe             a JSON schema that must not be evaluated
├── TokenError               a bearer token that proves nothing
│   ├── TokenMalformed       unreadable, or headers that are not accepted
│   ├── TokenRejected        readable, but not valid here and now
│   └── UnknownKey           signed by a key that is not in the key set (fetching may help)
├── SettingsInvalid          a service cannot start like this; carries one problem a setting
├── RevisionMismatch         a publish that does not continue what the replica has
└── EpochFenced              a publish of a leader that has been replaced
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class ToolcribError(Exception):
    """The root: catch it to catch everything core raises on purpose."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of one manifest field: where, what, and what to do about it."""

    field: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.field}: {self.message}" if self.field else self.message
        return f"{text} ({self.hint})" if self.hint else text


class InvalidManifest(ToolcribError):
    """A manifest that the models refuse; `.findings` names each field."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        self.findings = findings
        super().__init__("; ".join(str(f) for f in findings))


class SchemaUnsafe(ToolcribError):
    """A JSON schema that must not be evaluated; the message says where and why."""


class SettingsInvalid(ToolcribError):
    """A service cannot start like this; `.problems` names each setting, and quotes no value."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class TokenError(ToolcribError):
    """A bearer token that proves nothing. Messages never contain the token."""

    reason = "invalid_token"


class TokenMalformed(TokenError):
    """The token cannot be read, or its header asks for something that is never accepted."""


class TokenRejected(TokenError):
    """The token can be read but is not valid here and now: issuer, audience, time or signature."""


class UnknownKey(TokenError):
    """The token names a key that the issuer's known key set lacks; `.issuer` may be asked for fresh keys."""

    def __init__(self, issuer: str, kid: str | None) -> None:
        self.issuer = issuer
        self.kid = kid
        super().__init__("signed by an unknown key")


class RevisionMismatch(ToolcribError):
    """A publish continues another revision than the one held; the answer is a full snapshot."""


class EpochFenced(ToolcribError):
    """A publish carries a lower epoch than one already seen: its sender no longer leads."""
