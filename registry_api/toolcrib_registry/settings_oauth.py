"""The section of the registry's settings about OAuth."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from toolcrib_registry.settings_sections import Section

SCOPE_TOKEN = r"^[!#-\[\]-~]+$"
"""A scope as RFC 6749 §3.3 has it."""
OFFLINE_ACCESS = "offline_access"


class OAuth(Section):
    """What MCP clients are told about getting a token for `/mcp` and `/mcp/direct` (RFC 9728)."""

    authorization_servers: tuple[str, ...] | None = Field(
        default=None,
        description="Issuers where MCP clients can log in; each must be in issuers. Absent: all issuers with "
        "an http(s) URL, except the cluster's and the local one. An empty list: no metadata, so "
        "clients start no login.",
    )
    scopes_supported: tuple[Annotated[str, Field(pattern=SCOPE_TOKEN, max_length=128)], ...] = Field(
        default=(),
        max_length=64,
        description="Scopes that MCP clients request at login, such as `calculator:use`. They are not "
        "derived from tools. `offline_access` is not allowed: refresh tokens are between the "
        "client and its provider.",
    )

    @model_validator(mode="after")
    def _for_tools_alone(self) -> OAuth:
        if OFFLINE_ACCESS in self.scopes_supported:
            raise ValueError(
                f"scopes_supported must not contain {OFFLINE_ACCESS}: clients decide about refresh tokens themselves"
            )
        return self
