"""The shapes of two searches that agents of the MCP Gateway & Registry project know, so that they work here unchanged.

`intelligent_tool_finder` is a tool of that project's gateway, in two generations of arguments and answers;
`POST /api/search/semantic` is a route of its registry. Field names are theirs. What they have and this registry has
not (agents, skills, peers, backends' addresses) is empty or null; fields that are not listed here are ignored.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator

from toolcrib.wire.api import Answer, example
from toolcrib.wire.search import Tag

_HASHTAG = re.compile(r"#([\w-]+)")
_MOST_TAGS = 16
Tags = Annotated[tuple[Tag, ...], FailFast(), BeforeValidator(lambda given: () if given is None else given)]


class CompatRequest(BaseModel):
    """Base of these requests: their callers send fields that mean nothing here, and those are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_max_length=65_536)


class FinderRequest(CompatRequest):
    """The arguments of `intelligent_tool_finder`.

    `natural_language_query`, `top_k_services` and `top_n_tools` of the first generation, `query` and `top_n` of the second,
    `tags` of both.
    """

    model_config = example(natural_language_query="work out a percentage", top_k_services=3, top_n_tools=2)

    natural_language_query: str | None = Field(default=None, max_length=10_000)
    query: str | None = Field(default=None, max_length=10_000)
    tags: Tags = Field(
        default=(), max_length=_MOST_TAGS, description="The tool carries all of them, ignoring case."
    )
    top_k_services: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Only tools of the best N servers; default 3, or no limit with `query`.",
    )
    top_n_tools: int | None = Field(
        default=None, ge=1, le=100, description="How many; 1 where it is left out."
    )
    top_n: int | None = Field(
        default=None, ge=1, le=100, description="The same; 5 where it is left out beside `query`."
    )

    @model_validator(mode="after")
    def _says_one_thing(self) -> FinderRequest:
        for one, other in (("natural_language_query", "query"), ("top_n_tools", "top_n")):
            first, second = getattr(self, one), getattr(self, other)
            if first is not None and second is not None and first != second:
                raise ValueError(
                    f"{one} and {other} are two names of one parameter and differ: send one of them"
                )
        if not self.words and not self.tags:
            raise ValueError("specify natural_language_query (or query), tags, or both")
        return self

    @property
    def words(self) -> str:
        """What is asked for, in words; may be empty."""
        return (self.natural_language_query or self.query or "").strip()

    @property
    def second_generation(self) -> bool:
        """Whether the caller speaks the names of the second generation, and expects its answer."""
        return self.natural_language_query is None and (self.query is not None or self.top_n is not None)


class ParsedDescription(Answer):
    """A tool's description, taken apart."""

    main: str
    args: str = ""
    returns: str = ""
    raises: str = ""


def _is_none(value: object) -> bool:
    return value is None


class FinderTool(Answer):
    """One tool of an answer to the first generation, which is a list of these."""

    tool_name: str
    tool_parsed_description: ParsedDescription
    tool_schema: dict[str, Any]
    service_path: str
    service_name: str
    overall_similarity_score: float | None = Field(
        default=None, exclude_if=_is_none, description="The confidence; absent where there were tags alone."
    )


class FinderResult(Answer):
    """One tool of an answer to the second generation."""

    tool_name: str
    server_name: str
    description: str | None = None
    score: float | None = Field(default=None, description="The confidence; null where there were tags alone.")
    path: str | None = None


class FinderAnswer(Answer):
    """The answer to the second generation."""

    results: tuple[FinderResult, ...]
    query: str
    total_results: int
    status: str = "success"


class SemanticRequest(CompatRequest):
    """`POST /api/search/semantic`. `#name` in the query is a tag."""

    model_config = example(query="work out a percentage", entity_types=["tool"], max_results=5)

    query: str = Field(default="", max_length=10_000)
    entity_types: Tags = Field(
        default=(),
        max_length=32,
        description="`tool` and `mcp_server` are here, and both are meant where it is left out; of others there are none.",
    )
    tags: Tags = Field(default=(), max_length=_MOST_TAGS)
    max_results: int = Field(default=10, ge=1, le=50)
    include_deprecated: bool = False

    @model_validator(mode="after")
    def _asks_for_something(self) -> SemanticRequest:
        if not self.words and not self.all_tags:
            raise ValueError("Provide a search query, tags, or both.")
        if len(self.all_tags) > _MOST_TAGS:
            raise ValueError(f"at most {_MOST_TAGS} tags, including those in the query")
        return self

    @property
    def words(self) -> str:
        """The query without its tags."""
        return " ".join(_HASHTAG.sub(" ", self.query).split())

    @property
    def all_tags(self) -> tuple[str, ...]:
        """The tags of both places, each once."""
        return tuple(dict.fromkeys(t.lower() for t in (*self.tags, *_HASHTAG.findall(self.query))))


class MatchingTool(Answer):
    """A tool of a server that was found."""

    tool_name: str
    description: str | None = None
    relevance_score: float = 0.0
    match_context: str | None = None
    inputSchema: dict[str, Any] | None = None  # noqa: N815


class SemanticServer(Answer):
    """A server with the tools of it that were found."""

    path: str
    server_name: str
    description: str | None = None
    tags: tuple[str, ...] = ()
    num_tools: int = Field(default=0, description="Tools of it that the caller may see.")
    is_enabled: bool = True
    relevance_score: float = Field(description="Its best tool's.")
    similarity_score: float | None = None
    match_context: str | None = None
    matching_tools: tuple[MatchingTool, ...] = ()
    sync_metadata: dict[str, Any] | None = None
    endpoint_url: str | None = None
    proxy_pass_url: str | None = None
    mcp_endpoint: str | None = None
    sse_endpoint: str | None = None
    supported_transports: tuple[str, ...] = ()
    trust_verified: str = "none"
    deployment: str = "remote"


class SemanticTool(Answer):
    """A tool that was found."""

    server_path: str
    server_name: str
    tool_name: str
    description: str | None = None
    inputSchema: dict[str, Any] | None = None  # noqa: N815
    relevance_score: float = Field(description="The confidence, 0 to 1; 1 where there were tags alone.")
    similarity_score: float | None = Field(
        default=None, description="The cosine, 0 where it is negative; null without one."
    )
    match_context: str | None = Field(default=None, description="Why it was found.")
    endpoint_url: str | None = None


class SemanticAnswer(Answer):
    """The answer of `POST /api/search/semantic`."""

    model_config = example(
        query="work out a percentage",
        search_mode="hybrid",
        tools=[
            {
                "server_path": "/heist",
                "server_name": "heist",
                "tool_name": "calculator",
                "description": "Compute an arithmetic expression exactly.",
                "relevance_score": 0.87,
            }
        ],
        total_tools=1,
    )

    query: str
    search_mode: str = Field(description="`hybrid`, `lexical-only`, or `tag-only`.")
    servers: tuple[SemanticServer, ...] = ()
    tools: tuple[SemanticTool, ...] = ()
    agents: tuple[dict[str, Any], ...] = ()
    skills: tuple[dict[str, Any], ...] = ()
    virtual_servers: tuple[dict[str, Any], ...] = ()
    custom: tuple[dict[str, Any], ...] = ()
    total_servers: int = 0
    total_tools: int = 0
    total_agents: int = 0
    total_skills: int = 0
    total_virtual_servers: int = 0
    total_custom: int = 0
