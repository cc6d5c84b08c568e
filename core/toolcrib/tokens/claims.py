"""Which claims of an issuer's tokens carry what, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from toolcrib.errors import TokenRejected

ClaimName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
"""A claim. Dots step into objects (`realm_access.roles`) where there is no claim of the whole name."""

_ABSENT = object()
_EMAIL = re.compile(r"(.*[^A-Za-z0-9_-])?email", re.IGNORECASE | re.DOTALL)
"""A claim that holds an address: `email`, also within an object or a namespace (`profile.email`)."""


class Claims(BaseModel):
    """Which claims carry what. Of several names the first that is in the token counts, readable or not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client: tuple[ClaimName, ...] = Field(
        default=("azp", "client_id"),
        description="The OAuth client: Entra's v1 tokens have it in appid, Okta's in cid, Dex's in azp or aud.",
    )
    user: ClaimName = Field(
        default="sub",
        description="The name of a user. With email, tokens are refused unless email_verified is true.",
    )
    groups: ClaimName | None = Field(
        default="groups", description="The groups, a list or one name; null: groups are not read."
    )
    scopes: tuple[ClaimName, ...] = Field(
        default=("scope", "scp", "roles"),
        description="The scopes, a list or words between spaces. In all of these a dot steps into an object, as in realm_access.roles, "
        "where there is no claim of the whole name.",
    )

    def client_of(self, claims: Mapping[str, Any]) -> str | None:
        """The client; None where no claim names exactly one."""
        return text(next(_present(claims, self.client), None))

    def user_of(self, claims: Mapping[str, Any]) -> str | None:
        """The user; None where the claim is not there or is no text.

        Raises:
            TokenRejected: it is an email address that the issuer has not verified (OIDC Core §5.1, `email_verified`): with many
                providers people choose it themselves. Refused rather than dropped, so that no denial by user is evaded.
        """
        user = text(next(_present(claims, (self.user,)), None))
        if user is not None and _EMAIL.fullmatch(self.user):
            verified = next(_present(claims, (f"{self.user}_verified",)), None)
            if verified is not True:
                raise TokenRejected(
                    f"the token's {self.user} is not verified: {self.user}_verified is not true"
                )
        return user

    def groups_of(self, claims: Mapping[str, Any]) -> frozenset[str]:
        """The groups, but for `system:` ones, which are the cluster's.

        Raises:
            TokenRejected: the claim is neither a list nor a name: which denies hold cannot be told.
        """
        if self.groups is None:
            return frozenset()
        value = next(_present(claims, (self.groups,)), None)
        if isinstance(value, str):  # ADFS writes a list of one as text
            value = [value]
        if value is not None and not isinstance(value, list):
            raise TokenRejected("the token's groups are not a list of names")
        return frozenset(g for g in value or () if isinstance(g, str) and g and not g.startswith("system:"))

    def scopes_of(self, claims: Mapping[str, Any]) -> frozenset[str] | None:
        """None: no scope claim at all. A claim that is empty or no list of words grants nothing."""
        for value in _present(claims, self.scopes):
            if isinstance(value, str):
                return frozenset(value.split())
            return (
                frozenset(v for v in value if isinstance(v, str)) if isinstance(value, list) else frozenset()
            )
        return None

    def refuse_distributed(self, claims: Mapping[str, Any]) -> None:
        """Refuse a token that leaves a mapped claim to be fetched elsewhere: nothing is fetched, and without it denies may not hold.

        (OIDC Core §5.6.2; Entra writes it from 200 groups on, `hasgroups` where there is no room even for that.)

        Raises:
            TokenRejected: naming the claim.
        """
        elsewhere = claims.get("_claim_names", {})
        names = set(elsewhere) if isinstance(elsewhere, dict) else set()
        if claims.get("hasgroups", False) is not False:
            names.add("groups")
        mapped = (*self.client, self.user, *self.scopes, *((self.groups,) if self.groups else ()))
        for name in mapped:
            if name in names and name not in claims:
                raise TokenRejected(
                    f"the token does not contain its {name} but a link to them; configure the issuer to "
                    "include them"
                )


def text(value: Any) -> str | None:
    """A text that is not empty, or such a text alone in a list, as `aud` may be; else None."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) and value else None


def time(claims: Mapping[str, Any], name: str) -> float | None:
    """A time in seconds since the epoch; None where the claim is not there.

    Raises:
        TokenRejected: it is there and is none: text, true, negative, or beyond all calendars.
    """
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise TokenRejected(f"the token's {name} is not a time")
    return float(value)


def account_uid(claims: Mapping[str, Any]) -> str | None:
    """`kubernetes.io` → `serviceaccount` → `uid` of a projected token (KEP-1205)."""
    ours = claims.get("kubernetes.io")
    account = ours.get("serviceaccount") if isinstance(ours, dict) else None
    uid = account.get("uid") if isinstance(account, dict) else None
    return uid if isinstance(uid, str) and uid else None


def _present(claims: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The values of those names that are in the token, in order."""
    return (found for found in (_at(claims, name) for name in names) if found is not _ABSENT)


def _at(members: Mapping[str, Any], name: str) -> Any:
    """The longest names first, so that names with dots in them (https://example.com/groups) are found too."""
    if name in members:
        return members[name]
    end = name.rfind(".")
    while end > 0:
        inner = members.get(name[:end])
        if isinstance(inner, dict):
            found = _at(inner, name[end + 1 :])
            if found is not _ABSENT:
                return found
        end = name.rfind(".", 0, end)
    return _ABSENT
