"""The simple discovery protocol and the operational answers: what clients in the field depend on.

Each listed tool has exactly eight keys; one more or less makes a known client drop the whole list. (Issue 3, Contract
of the simple discovery protocol.)
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from toolcrib import names
from toolcrib.wire.api import Answer, Request, example

PATH = r"^/[!-~]*$"


class Parameter(Answer):
    """One argument as the simple protocol describes it."""

    type: str
    description: str
    required: bool


class DiscoveryEntry(Answer):
    """A tool of `GET /`: exactly these eight keys; a known client drops the whole list for one more or less."""

    name: str
    endpoint: str
    scopes: tuple[str, ...]
    description: str
    parameters: dict[str, Parameter]
    returns: str
    host: str
    port: int

    model_config = ConfigDict(frozen=True, extra="forbid")


class Discovery(Answer):
    """The answer of `GET /`."""

    service: str
    version: str
    protocol: Literal["MCP"]
    authenticated: bool
    scopes: tuple[str, ...]
    total_available: int
    total_registered: int
    tools: tuple[DiscoveryEntry, ...]


class Registration(Request):
    """`POST /tools/register`. Without host and port the tool is listed, and its calls answer 503 `no_backend`."""

    model_config = example(
        name="exchange_rate", endpoint="/rate", scopes=["exchange_rate:use"], description="Today's rate."
    )

    name: str = Field(pattern=names.TOOL_NAME, examples=["exchange_rate"])
    endpoint: str = Field(default="/", pattern=PATH, max_length=1024, description="Path at host:port.")
    scopes: Annotated[
        tuple[Annotated[str, Field(pattern=names.SCOPE)], ...], Field(min_length=1, max_length=16)
    ]
    description: str = Field(default="", max_length=4096)
    parameters: dict[str, Any] | None = Field(
        default=None,
        description="A map of properties, as `GET /` shows them; or a JSON schema as input_schema.",
    )
    input_schema: dict[str, Any] | None = None
    returns: str | None = Field(default=None, max_length=1024)
    host: str | None = Field(default=None, min_length=1, max_length=253)
    port: int | None = Field(default=None, ge=1, le=65535)
    server: str | None = Field(default=None, pattern=names.SERVER_NAME)
    tags: tuple[Annotated[str, Field(pattern=names.TAG)], ...] = Field(default=(), max_length=16)
    examples: tuple[Annotated[str, Field(min_length=1, max_length=512)], ...] = Field(
        default=(), max_length=16
    )


class Registered(Answer):
    """The answer to a registration."""

    model_config = example(
        status="success", message="Tool 'exchange_rate' registered successfully", total_tools=5
    )

    status: Literal["success"] = "success"
    message: str
    total_tools: int


class Stats(Answer):
    """`GET /stats`: what the caller may see; the whole catalog for holders of `registry:write`."""

    model_config = example(
        total_tools=1, tools_by_name=["calculator"], scope_usage={"calculator:use": 1}, unique_scopes=1
    )

    total_tools: int
    tools_by_name: tuple[str, ...] = Field(
        description="The name of each tool, as `GET /` lists it, sorted. A tool outside the caller's view has its id "
        "where another tool shares its name."
    )
    scope_usage: dict[str, int]
    unique_scopes: int


class Health(Answer):
    """`GET /health`."""

    model_config = example(status="healthy")

    status: Literal["healthy"] = "healthy"


class Part(Answer):
    """One part of the service, and why it is not ready."""

    ready: bool
    detail: str = ""


class Readiness(Answer):
    """`GET /readyz`."""

    model_config = example(ready=True, parts={"snapshot": {"ready": True, "detail": ""}})

    ready: bool
    parts: dict[str, Part]
