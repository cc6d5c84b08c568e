"""What of an identity decides, as one `identity` record a file explains it: the digest in other records names it.

Of the groups only those that some binding names, of the token's scopes only where the issuer's policy reads them. The
token's own dates are left out, or each token would be another caller: a record has them where they were not met.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.audit import chain as audit_chain
from toolcrib.authorizer import Policy, is_valid
from toolcrib.identity import Identity, ScopesPolicy

DIGITS = 16
"""Hexadecimal digits of a digest: a longer one would be most of what records grow by."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What decided of one identity: `digest` stands in records, `fields` in the record that explains it."""

    digest: str
    key: bytes = field(repr=False)
    """The whole digest: tells two callers apart that share the short one."""
    fields: Mapping[str, Any] = field(repr=False, compare=False)


def caller_of(identity: Identity, policy: Policy) -> Caller:
    """What of `identity` decides under `policy`."""
    named = sorted(g for g in identity.groups if ("group", identity.issuer, g) in policy.by_subject)
    fields: dict[str, Any] = {"issuer": identity.issuer, "subject": identity.subject}
    fields |= {
        name: value
        for name, value in (
            ("client", identity.client),
            ("user", identity.user),
            ("account_uid", identity.account_uid),
            ("cluster", identity.cluster),
            ("groups", named),
        )
        if value
    }
    fields["policy"] = identity.policy.value
    if identity.policy is not ScopesPolicy.BINDINGS:
        fields["scopes"] = sorted(identity.scopes or ())
    digest = hashlib.sha256(audit_chain.canonical(fields))
    return Caller(digest.hexdigest()[:DIGITS], digest.digest(), fields)


def unmet_dates(identity: Identity, at: float) -> dict[str, float]:
    """The dates of the token that make it invalid at `at` (seconds since the epoch); a record without them had a valid one."""
    if is_valid(identity, at):
        return {}
    if at >= identity.expires_at:
        return {"expires_at": identity.expires_at}
    return {"not_before": identity.not_before or 0.0}


def identity_of(fields: Mapping[str, Any], dates: Mapping[str, Any] | None = None) -> Identity:
    """An identity that decides as the recorded one did; `dates` are those that its token did not meet.

    Raises:
        KeyError, TypeError, ValueError: the record is not one of these.
    """
    dates = dates or {}
    starts = dates.get("not_before")
    return Identity(
        issuer=str(fields["issuer"]),
        subject=str(fields["subject"]),
        expires_at=float(dates.get("expires_at", math.inf)),
        not_before=None if starts is None else float(starts),
        client=fields.get("client"),
        user=fields.get("user"),
        groups=frozenset(map(str, fields.get("groups", ()))),
        scopes=None if "scopes" not in fields else frozenset(map(str, fields["scopes"])),
        policy=ScopesPolicy(fields["policy"]),
        cluster=bool(fields.get("cluster", False)),
        account_uid=fields.get("account_uid"),
    )
