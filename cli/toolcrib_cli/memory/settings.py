"""How `toolcrib memory` is set up: flags, else environment variables, else defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from toolcrib.settings import Source
from toolcrib_cli.session_store.database import has_password


def _list(given: Any) -> Any:
    """The parts of a text, by space or comma; of a flag, each time that it was given."""
    return tuple(given.replace(",", " ").split()) if isinstance(given, str) else given


def _no_password(url: str | None) -> str | None:
    if url is not None and has_password(url):
        raise ValueError("must not hold a password: use PGPASSWORD or a .pgpass file")
    return url


_URL = r"^https?://[^\s@?#]+$"


class MemorySettings(BaseModel):
    """One process that stores what agents remember."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8092, ge=0, le=65535, description="Port. 0 takes a free one.")
    issuer: str = Field(
        pattern=_URL, description="Public URL of the registry. Calls without its assertion are refused."
    )
    jwks_url: str | None = Field(
        default=None,
        pattern=_URL,
        description="Address of its keys. Absent: /.well-known/jwks.json at the issuer.",
    )
    ca_file: Path | None = Field(
        default=None, description="CA bundle (PEM) for that address, instead of the system's."
    )
    tool: Annotated[tuple[str, ...], BeforeValidator(_list)] = Field(
        default=("heist/store-memory", "heist/get-compressed-memory"),
        min_length=1,
        description="Id of a Tool that this program executes; * is a wildcard. Repeatable.",
    )
    data: Path | None = Field(
        default=None, description="Data folder, for a store in SQLite. Absent: the user's data folder."
    )
    store: Annotated[str | None, AfterValidator(_no_password)] = Field(
        default=None,
        description="postgresql://USER@HOST/DATABASE, instead of the data folder. The password is in PGPASSWORD or a .pgpass "
        "file.",
    )
    keep_days: int = Field(default=30, ge=1, le=3650, description="Days after which a message is deleted.")
    most: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Most messages of an agent. Further ones are refused until earlier ones are deleted.",
    )


SOURCE = Source(
    MemorySettings,
    "TOOLCRIB_MEMORY_",
    variables={"data": "TOOLCRIB_DATA"},
    forms={_URL: "an http:// or https:// address without user, query or fragment"},
)
"""Flags before variables: `TOOLCRIB_MEMORY_` and the field, but for the data folder, which commands share."""
