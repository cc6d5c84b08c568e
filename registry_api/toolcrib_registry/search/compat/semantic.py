"""`POST /api/search/semantic`: its request as a search of ours, what was found as its answer. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from toolcrib.wire.compat import MatchingTool, SemanticAnswer, SemanticRequest, SemanticServer, SemanticTool
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.search.compat.services import service_name, service_path
from toolcrib_registry.search.question import Wanted
from toolcrib_registry.search.service import Findings, Hit

_ALIKE = 1.0
"""The relevance of a tool that was found by its tags alone: this shape has no way to say that there is none."""
_MODES = {"lexical": "lexical-only", "filter": "tag-only"}


def wanted(asked: SemanticRequest) -> Wanted:
    """The search that is asked for."""
    states = () if asked.include_deprecated else ("Active",)
    return Wanted(query=asked.words, tags=asked.all_tags, states=states, limit=asked.max_results)


def answer(asked: SemanticRequest, found: Findings) -> SemanticAnswer:
    """What was found, in the words of the asker."""
    kinds = frozenset(asked.entity_types or ("mcp_server", "tool"))
    tools = tuple(_tool(hit) for hit in found.hits) if "tool" in kinds else ()
    servers = _servers(found.hits, found.caller_view.view.tools.values()) if "mcp_server" in kinds else ()
    return SemanticAnswer(
        query=asked.query,
        search_mode=_MODES.get(found.answer.mode, "hybrid"),
        tools=tools,
        servers=servers,
        total_tools=len(tools),
        total_servers=len(servers),
    )


def _tool(hit: Hit) -> SemanticTool:
    return SemanticTool(
        server_path=service_path(hit.tool),
        server_name=service_name(hit.tool),
        tool_name=hit.name,
        description=hit.tool.description,
        inputSchema=hit.tool.input_schema,
        relevance_score=_relevance(hit),
        similarity_score=None if hit.found.dense is None else max(0.0, hit.found.dense),
        match_context=hit.found.why,
    )


def _servers(hits: Sequence[Hit], visible: Collection[PublishedTool]) -> tuple[SemanticServer, ...]:
    of_server: dict[tuple[str, str | None], list[Hit]] = {}
    for hit in hits:
        of_server.setdefault((hit.tool.namespace, hit.tool.server), []).append(hit)
    sizes = dict.fromkeys(of_server, 0)
    for tool in visible:
        if (server := (tool.namespace, tool.server)) in sizes:
            sizes[server] += 1
    return tuple(
        SemanticServer(
            path=service_path(own[0].tool),
            server_name=service_name(own[0].tool),
            num_tools=sizes[server],
            relevance_score=max(map(_relevance, own)),
            match_context=own[0].found.why,
            matching_tools=tuple(
                MatchingTool(
                    tool_name=hit.name,
                    description=hit.tool.description,
                    relevance_score=_relevance(hit),
                    match_context=hit.found.why,
                    inputSchema=hit.tool.input_schema,
                )
                for hit in own
            ),
        )
        for server, own in of_server.items()
    )


def _relevance(hit: Hit) -> float:
    return _ALIKE if hit.found.confidence is None else hit.found.confidence
