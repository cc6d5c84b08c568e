"""What agents and the registry say to each other over HTTP under `/v1`.

`search` holds the shapes of `/v1/search`, `simple` those of the simple discovery protocol.

Answers never carry a backend, an address of one, or a credential. `revision` names the content of the caller's own
view: it does not change with what the caller cannot see. (DESIGN §5.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from toolcrib.resources.tools import ScopeMatch, ToolState
from toolcrib.schemas.objects import of_objects
from toolcrib.wire.publish import PublishedTool


def example(**fields: Any) -> ConfigDict:
    """Shown in the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


_TOOL: dict[str, Any] = {
    "tool_id": "heist/calculator",
    "name": "calculator",
    "namespace": "heist",
    "description": "Compute an arithmetic expression exactly.",
    "scopes": ["calculator:use"],
    "scope_match": "Any",
    "tags": ["math"],
    "input_schema": {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
    },
    "annotations": {"readOnlyHint": True},
    "state": "Active",
    "digest": "sha256:4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a",
}


_MOST_MISTAKES = 20
"""Mistakes of one request that are told."""


class Answer(BaseModel):
    """Base of answers: a client ignores what it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Request(BaseModel):
    """Base of requests: unknown fields are refused, so that a misspelt one is not silently without effect."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=65_536)

    @model_validator(mode="before")
    @classmethod
    def _few_mistakes(cls, given: Any) -> Any:
        """Of many unknown fields only the first are refused by name: an error for each of 80,000 takes a second."""
        if not isinstance(given, dict) or len(given) <= _MOST_MISTAKES:
            return given
        known = {f.alias or name for name, f in cls.model_fields.items()} | cls.model_fields.keys()
        unknown = [name for name in given if name not in known]
        return {name: given[name] for name in (*(known & given.keys()), *unknown[:_MOST_MISTAKES])}


def with_tools(answer: Answer, tools: Iterable[Answer], *, exclude_none: bool = False) -> bytes:
    """The JSON of `answer`, whose `tools` are empty, with these: one by one, since other threads wait for each step."""
    head, empty, end = answer.model_dump_json(exclude_none=exclude_none).partition('"tools":[]')
    encoded = [tool.model_dump_json(exclude_none=exclude_none).encode() for tool in tools]
    return b"".join((head.encode(), empty[:-1].encode(), b",".join(encoded), b"]", end.encode()))


class ToolDefinition(Answer):
    """A tool in full, as `/v1` shows it: what a model reads, never where it runs."""

    model_config = example(**_TOOL)

    tool_id: str
    name: str = Field(description="The name by which this caller lists and calls it.")
    namespace: str
    server: str | None = None
    title: str | None = None
    description: str = ""
    scopes: tuple[str, ...]
    scope_match: ScopeMatch
    tags: tuple[str, ...] = ()
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    returns: str | None = None
    annotations: dict[str, bool] = Field(default_factory=dict)
    state: ToolState
    replaced_by: str | None = None
    message: str | None = None
    digest: str

    @classmethod
    def of(cls, tool: PublishedTool, name: str) -> ToolDefinition:
        """`tool` under the name that the caller knows it by."""
        return cls(
            tool_id=tool.tool_id,
            name=name,
            namespace=tool.namespace,
            server=tool.server,
            title=tool.title,
            description=tool.description,
            scopes=tool.scopes,
            scope_match=tool.scope_match,
            tags=tool.tags,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            returns=tool.returns,
            annotations=tool.annotations,
            state=tool.state,
            replaced_by=tool.replaced_by,
            message=tool.message,
            digest=tool.digest,
        )


class DescribedTool(ToolDefinition):
    """The answer of `/v1/describe`: the definition with sample requests."""

    model_config = example(**_TOOL, examples=["what is 17 percent of 2450"])

    examples: tuple[str, ...] = ()

    @classmethod
    def of(cls, tool: PublishedTool, name: str) -> DescribedTool:
        """`tool` under the name that the caller knows it by."""
        return cls(**dict(ToolDefinition.of(tool, name)), examples=tool.examples)


class ToolPage(Answer):
    """One page of `GET /v1/tools`, by tool id."""

    model_config = example(revision="41d0e299ca1abeb2", tools=[_TOOL], next_cursor=None)

    revision: str
    tools: tuple[ToolDefinition, ...]
    next_cursor: str | None = None


ToolName = Annotated[
    str, Field(min_length=1, max_length=512, description="A listed name, a tool id, or server:tool.")
]


class AccessRequestBody(Request):
    """`POST /v1/access-requests`."""

    model_config = example(tool_id="heist/database-query", why="The user asks for last month's orders.")

    tool_id: str = Field(min_length=1, max_length=512, description="The id of the tool, as namespace/name.")
    why: str = Field(
        min_length=1, max_length=280, description="What it is for, in a sentence: people read it."
    )


class AccessRequested(Answer):
    """An access request that waits for people."""

    model_config = example(request="heist/database-query-1f2e3d4c", state="open")

    request: str = Field(description="Its namespace/name. Asking again returns the same while it is open.")
    state: str = "open"


class DescribeRequest(Request):
    """`POST /v1/describe`."""

    model_config = example(tool="calculator")

    tool: ToolName


class LoadRequest(Request):
    """`POST /v1/load`."""

    model_config = example(tools=["calculator", "heist/file-reader"])

    tools: Annotated[tuple[ToolName, ...], FailFast()] = Field(min_length=1, max_length=100)


class McpTool(Answer):
    """A definition in the words of MCP (2025-11-25, Tool), ready for `tools/list`."""

    name: str
    title: str | None = None
    description: str
    input_schema: dict[str, Any] = Field(alias="inputSchema")
    output_schema: dict[str, Any] | None = Field(default=None, alias="outputSchema")
    annotations: dict[str, bool] | None = None
    meta: dict[str, Any] = Field(alias="_meta")

    model_config = ConfigDict(frozen=True, extra="ignore", validate_by_name=True, serialize_by_alias=True)

    @classmethod
    def of(cls, tool: PublishedTool, name: str, model_name: str) -> McpTool:
        """`tool` under the name that the caller knows it by; `model_name` is its name for models."""
        return cls(
            name=name,
            title=tool.title,
            description=tool.description,
            input_schema=of_objects(tool.input_schema),
            output_schema=tool.output_schema,
            annotations=tool.annotations or None,
            meta={
                "toolcrib.dev/tool-id": tool.tool_id,
                "toolcrib.dev/model-name": model_name,
                "toolcrib.dev/digest": tool.digest,
                "toolcrib.dev/server": tool.server,
            },
        )


class LoadError(Answer):
    """Why one of the tools asked for is not among those loaded."""

    tool: str
    code: str
    detail: str
    tool_ids: tuple[str, ...] | None = None


class LoadAnswer(Answer):
    """The answer of `/v1/load`."""

    model_config = example(
        revision="41d0e299ca1abeb2",
        tools=[
            {
                "name": "calculator",
                "description": "Compute an arithmetic expression exactly.",
                "inputSchema": _TOOL["input_schema"],
                "_meta": {
                    "toolcrib.dev/tool-id": "heist/calculator",
                    "toolcrib.dev/model-name": "calculator",
                },
            }
        ],
        errors=[{"tool": "nope", "code": "tool_not_found", "detail": "Tool 'nope' not found"}],
    )

    revision: str
    tools: tuple[McpTool, ...]
    errors: tuple[LoadError, ...]


class CallRequest(Request):
    """`POST /v1/call`."""

    model_config = example(tool="calculator", arguments={"expression": "6*7"})

    tool: ToolName
    arguments: dict[str, Any] = Field(default_factory=dict)


class CallAnswer(Answer):
    """The answer of `/v1/call`: what the backend said, parsed where it is JSON.

    Of a tool of an MCP server `result` is its structured content, else its one text or bytes (base64), else its content
    blocks.
    """

    model_config = example(
        tool_id="heist/calculator", content_type="application/json", result={"result": 42}, elapsed=0.004
    )

    tool_id: str
    fallback_for: str | None = Field(
        default=None,
        description="The id of the tool that was called, where its backend is down and the fallback `tool_id` answered. Absent "
        "otherwise; the header `Toolcrib-Fallback` then has `tool_id`.",
    )
    content_type: str
    result: Any
    elapsed: float = Field(description="seconds")
    content: list[dict[str, Any]] | None = Field(
        default=None,
        description="The content blocks of a tool of an MCP server that has structured content, too.",
    )


class Problem(BaseModel):
    """An error (RFC 9457): `code` is stable, `detail` and `hint` are for people."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str | None = Field(default=None, description="What to do next, by `code`.")


class WatchSnapshot(Answer):
    """The first event of `/v1/watch` (`event: snapshot`): the whole view."""

    revision: str
    tools: tuple[ToolDefinition, ...]


class WatchTool(Answer):
    """`event: added` and `event: changed`."""

    revision: str
    tool: ToolDefinition


class WatchRemoved(Answer):
    """`event: removed`."""

    revision: str
    tool_id: str
    name: str
