"""Protected resources: paths that have tokens of their own, and what clients without one are told (RFC 9728, RFC 8707).

A token that is meant for one of them has its URL as `aud`. It is accepted on that path alone; what the issuers' own
`audience` lists name is accepted everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolcrib.identity import Issuer
from toolcrib_registry.clock import Clock
from toolcrib_registry.identity.authenticator import Authenticator
from toolcrib_registry.identity.keys import Keys

PATHS = ("/mcp", "/mcp/direct")
"""Their lines stand in the route table."""
WELL_KNOWN = "/.well-known/oauth-protected-resource"
"""The metadata of a resource is at this path and its own behind it (RFC 9728 §3.1)."""
_UNSPEAKABLE = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")
"""What may not stand in an `error_description` (RFC 6750 §3)."""
_DESCRIBED = 200


@dataclass(frozen=True, slots=True, eq=False)
class ProtectedResource:
    """One of them. `agents` verifies its tokens; clients log in at `authorization_servers` and ask for `scopes`."""

    path: str
    url: str
    metadata_url: str
    agents: Authenticator
    authorization_servers: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    def metadata(self) -> dict[str, Any] | None:
        """What RFC 9728 calls the protected resource's metadata; None where there is nowhere to log in."""
        if not self.authorization_servers:
            return None
        return {
            "resource": self.url,
            "resource_name": "Toolcrib",
            "authorization_servers": list(self.authorization_servers),
            **({"scopes_supported": list(self.scopes)} if self.scopes else {}),
            "bearer_methods_supported": ["header"],
        }

    def challenge(
        self, error: str | None, scopes: Iterable[str] | None = None, *, description: str | None = None
    ) -> str:
        """The value of WWW-Authenticate.

        Without an authorization server it names no metadata: clients would start a login that cannot end.

        Args:
            error: what is wrong with the token; None: there was none.
            scopes: those to ask for; None: those of the settings.
            description: why, in a sentence for people.
        """
        if not self.authorization_servers:
            return challenge(error, description=description, scopes=scopes or ())
        wanted = self.scopes if scopes is None else scopes
        return challenge(
            error,
            description=description,
            realm=None,
            scopes=wanted,
            resource_metadata=self.metadata_url,
        )


def challenge(
    error: str | None,
    *,
    description: str | None = None,
    realm: str | None = "toolcrib",
    scopes: Iterable[str] = (),
    resource_metadata: str | None = None,
) -> str:
    """The value of WWW-Authenticate (RFC 6750 §3, RFC 9728 §5.1); what is None or empty is left out."""
    given = {
        "realm": realm,
        "error": error,
        "error_description": None if description is None else _UNSPEAKABLE.sub("?", description[:_DESCRIBED]),
        "resource_metadata": resource_metadata,
        "scope": " ".join(scopes),
    }
    return "Bearer " + ", ".join(f"{name}={_quoted(value)}" for name, value in given.items() if value)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def url(base: str, path: str) -> str:
    """The resource's identifier: what a token for `path` has as `aud`."""
    return base + path


def make(
    base: str,
    issuers: Sequence[Issuer],
    keys: Keys,
    clock: Clock,
    *,
    authorization_servers: tuple[str, ...] = (),
    scopes: tuple[str, ...] = (),
) -> Mapping[str, ProtectedResource]:
    """All of them by path. Each remembers tokens apart: one that is good here may be good nowhere else.

    Args:
        base: the registry's public URL.
        issuers: those of agents; they are trusted here with one audience more.
    """

    def agents(path: str) -> Authenticator:
        accepting = (
            issuer.model_copy(update={"audience": (*issuer.audience, url(base, path))}) for issuer in issuers
        )
        return Authenticator(accepting, keys, clock)

    return {
        path: ProtectedResource(
            path, url(base, path), base + WELL_KNOWN + path, agents(path), authorization_servers, scopes
        )
        for path in PATHS
    }
