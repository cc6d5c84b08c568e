"""What `POST /v1/search` takes and answers.

DESIGN §5, §6; docs/guides/agents.md says how to use it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, FailFast, Field, Strict

from toolcrib.wire.advice import ADVISED_MIN_SCORE
from toolcrib.wire.api import Answer, Request, example

SearchMode: TypeAlias = Literal["hybrid", "lexical", "dense", "compat"]
"""How to rank: words and meaning, words alone, meaning alone, or by the seed formula."""
Degradation: TypeAlias = Literal["embedder_unavailable", "store_unavailable", "index_empty"]
"""Why an answer is less than it could be."""
Tag = Annotated[str, Field(max_length=64)]
ServerName = Annotated[str, Field(max_length=128)]
Namespace = Annotated[str, Field(max_length=63)]


def _whole(given: object) -> object:
    return int(given) if isinstance(given, float) and given.is_integer() else given


Whole = Annotated[int, Strict(), BeforeValidator(_whole)]
"""A whole number as JSON Schema has it: `5` and `5.0`, neither `"5"` nor `true`."""
MinScore = Annotated[float, Strict()]
"""A confidence, 0 to 1, as a number: not `"0.1"`."""


def _is_none(value: object) -> bool:
    return value is None


class SearchRequest(Request):
    """`POST /v1/search`: words, filters, or both."""

    model_config = example(query="work out a percentage", tags=["math"], limit=5)

    query: str | None = Field(
        default=None,
        max_length=10_000,
        description="The request in words; only the first 2,000 characters count. Without it the filters "
        "alone decide: nothing is embedded, and hits are sorted by name, without a confidence.",
    )
    tags: Annotated[tuple[Tag, ...], FailFast()] = Field(
        default=(), max_length=16, description="The tool carries all of them, ignoring case."
    )
    servers: Annotated[tuple[ServerName, ...], FailFast()] = Field(
        default=(),
        max_length=32,
        description="The tool is of one of them: `name` or `namespace/name`, ignoring case.",
    )
    namespaces: Annotated[tuple[Namespace, ...], FailFast()] = Field(
        default=(), max_length=32, description="The tool is of one of them."
    )
    states: Annotated[tuple[Literal["Active", "Deprecated"], ...], FailFast()] = Field(
        default=(), max_length=2, description="The tool is in one of them; without it in either."
    )
    limit: Whole = Field(default=10, ge=1, le=100)
    top_k_servers: Whole | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Two stages: servers are ranked by their best tool, then the tools of the best N servers are "
        "ranked among themselves. Tools without a server count as one server a namespace.",
    )
    min_score: MinScore | None = Field(
        default=None,
        ge=0,
        le=1,
        description="The lowest confidence of a hit to return. Omit it in most cases: the answer is then "
        "empty if not even the best hit fits. With up to 15 tools send at most "
        f"{ADVISED_MIN_SCORE:g}. 0 keeps everything that was ranked.",
    )
    search_mode: SearchMode = Field(
        default="hybrid",
        description="`compat` ranks by the seed formula, keeps poor hits unless `min_score` is set, and adds "
        "`score`. `dense` and `compat` need an embedder.",
    )


class SearchResult(Answer):
    """A light hit; `/v1/describe` and `/v1/load` give the rest."""

    tool_id: str
    name: str
    short_desc: str
    server: str | None = None
    confidence: float | None = Field(
        default=None,
        exclude_if=_is_none,
        description="The probability that the tool answers the request, on one scale for all requests; it "
        "shifts slightly with view and filters. Absent if there were no words.",
    )
    score: float | None = Field(
        default=None,
        exclude_if=_is_none,
        description="`compat` only: the seed formula's value, at most 1; the order goes by what it was before that.",
    )
    why: str | None = Field(
        default=None,
        exclude_if=_is_none,
        description="Which of the request's words stand in which text of the tool, and how near both are in meaning.",
    )
    unavailable: Literal[True] | None = Field(
        default=None,
        exclude_if=_is_none,
        description="The tool's backend is down: it cannot be reached, or its circuit breaker is open. Such hits come last. "
        "Absent otherwise.",
    )


class SearchAnswer(Answer):
    """The answer of `/v1/search`. `degraded`: the index or the embedder was away, words alone decided."""

    model_config = example(
        revision="41d0e299ca1abeb2",
        search_mode="hybrid",
        degraded=False,
        tools=[
            {
                "tool_id": "heist/calculator",
                "name": "calculator",
                "short_desc": "Compute an arithmetic expression exactly.",
                "server": None,
                "confidence": 0.87,
                "why": "name: calculator; description: compute; meaning: 0.71",
            }
        ],
    )

    revision: str
    search_mode: Literal["hybrid", "lexical", "dense", "compat", "filter"] = Field(
        description="How the answer was found. `filter`: there were no words."
    )
    degraded: bool = False
    degradation: Degradation | None = Field(
        default=None,
        exclude_if=_is_none,
        description="Why it is degraded: the request could not be embedded, the index did not answer, or it "
        "is empty.",
    )
    tools: tuple[SearchResult, ...]
