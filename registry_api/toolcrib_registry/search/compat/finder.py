"""`intelligent_tool_finder`: its arguments as a search of ours, what was found as its answer.

Pure, so that every protocol that carries the tool uses it. The answer has the shape that the caller's argument names
belong to: a list for the first generation, an object with `results` for the second.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolcrib.wire.compat import FinderAnswer, FinderRequest, FinderResult, FinderTool, ParsedDescription
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.policy import discovery
from toolcrib_registry.search.compat.services import service_name, service_path
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.service import Hit

_SERVICES = 3
_TOOLS = 1
_RESULTS = 5
"""What is meant where a number is left out."""


def wanted(asked: FinderRequest) -> Wanted:
    """The search that is asked for."""
    services = asked.top_k_services
    if services is None and not asked.second_generation:
        services = _SERVICES
    number = asked.top_n_tools or asked.top_n or (_RESULTS if asked.second_generation else _TOOLS)
    return Wanted(query=asked.words, tags=asked.tags, limit=number, top_k_servers=services)


def answer(asked: FinderRequest, hits: Sequence[Hit]) -> list[FinderTool] | FinderAnswer:
    """What was found, in the words of the asker."""
    if not asked.second_generation:
        return [_tool(hit) for hit in hits]
    results = tuple(_result(hit) for hit in hits)
    return FinderAnswer(results=results, query=asked.words, total_results=len(results))


def _tool(hit: Hit) -> FinderTool:
    return FinderTool(
        tool_name=hit.name,
        tool_parsed_description=_parsed(hit.tool),
        tool_schema=hit.tool.input_schema,
        service_path=service_path(hit.tool),
        service_name=service_name(hit.tool),
        overall_similarity_score=hit.found.confidence,
    )


def _result(hit: Hit) -> FinderResult:
    return FinderResult(
        tool_name=hit.name,
        server_name=service_name(hit.tool),
        description=hit.tool.description,
        score=hit.found.confidence,
        path=service_path(hit.tool),
    )


def _parsed(tool: PublishedTool) -> ParsedDescription:
    arguments = [
        f"{name} ({said['type']}): {said['description']}"
        if said["description"]
        else f"{name} ({said['type']})"
        for name, said in discovery.parameters(tool.input_schema).items()
    ]
    return ParsedDescription(
        main=tool.description, args="\n".join(arguments), returns=discovery.returns(tool)
    )
