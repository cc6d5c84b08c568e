"""What the registry's discovery answer means: the tools in it, and what changed since the last one.

Pure. The answer is the simple discovery protocol's `GET /` (DESIGN §5; the issue's *Contract*): each tool has
`name, endpoint, scopes, description, parameters, returns, host, port`. It comes over the network, so every field
is checked; an entry that cannot be read is left out and counted, because one bad tool must not hide the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib_runner.errors import RegistryAnswerInvalid

_LISTED_NAME = re.compile(r"[A-Za-z0-9_./-]{1,512}")
_ENDPOINT = re.compile(r"/[!-~]{0,2047}")
_ENDPOINT_BY_ID = re.compile(r"/tools/([a-z0-9.-]+/[a-z0-9.-]+)")
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{0,253}")
MAX_DESCRIPTION = 16 * 1024
MAX_PARAMETERS = 512


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool. `types` are JSON schema type names; empty: any type will do."""

    name: str
    types: tuple[str, ...] = ()
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class DiscoveredTool:
    """One tool as the registry lists it for this agent."""

    name: str
    endpoint: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    scopes: tuple[str, ...] = ()
    returns: str = ""
    host: str = ""
    port: int = 0

    @property
    def tool_id(self) -> str:
        """`namespace/name` where the listing tells it, else the listed name: what names for models are made of."""
        by_id = None if "/" in self.name else _ENDPOINT_BY_ID.fullmatch(self.endpoint)
        return self.name if by_id is None else by_id[1]


@dataclass(frozen=True, slots=True)
class Discovered:
    """One discovery answer. `skipped` counts the entries that could not be read."""

    tools: tuple[DiscoveredTool, ...]
    authenticated: bool
    scopes: tuple[str, ...] = ()
    etag: str | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Rediscovery:
    """What a discovery changed, by tool name, sorted.

    A tool whose definition changed is still `unchanged` by name and listed in `changed` too.
    """

    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is different from before."""
        return bool(self.gained or self.lost or self.changed)


def compare(before: Mapping[str, DiscoveredTool], after: Mapping[str, DiscoveredTool]) -> Rediscovery:
    """What was gained, lost and kept between two sets of tools."""
    kept = before.keys() & after.keys()
    return Rediscovery(
        gained=tuple(sorted(after.keys() - kept)),
        lost=tuple(sorted(before.keys() - kept)),
        unchanged=tuple(sorted(kept)),
        changed=tuple(sorted(name for name in kept if before[name] != after[name])),
    )


def read(document: Any, etag: str | None = None) -> Discovered:
    """The tools of a discovery answer (parsed JSON).

    Raises:
        RegistryAnswerInvalid: the document is not a discovery answer at all.
    """
    if not isinstance(document, dict) or not isinstance(document.get("tools"), list):
        raise RegistryAnswerInvalid(
            "the discovery response has no list of tools: check that the URL is a registry's address"
        )
    tools: dict[str, DiscoveredTool] = {}
    skipped = 0
    for entry in document["tools"]:
        tool = _tool(entry)
        if tool is None or tool.name in tools:
            skipped += 1
        else:
            tools[tool.name] = tool
    return Discovered(
        tools=tuple(tools.values()),
        authenticated=document.get("authenticated") is True,
        scopes=_strings(document.get("scopes")),
        etag=etag,
        skipped=skipped,
    )


def read_schemas(document: Any) -> dict[str, dict[str, Any]]:
    """Tool name → input schema of a `/v1/load` answer; what cannot be read is left out."""
    tools = document.get("tools") if isinstance(document, dict) else None
    return {
        tool["name"]: tool["inputSchema"]
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, dict)
        and isinstance(tool.get("name"), str)
        and isinstance(tool.get("inputSchema"), dict)
    }


def read_annotations(document: Any) -> dict[str, dict[str, Any]]:
    """Tool name → MCP annotations of a `/v1/load` answer; what cannot be read is left out."""
    tools = document.get("tools") if isinstance(document, dict) else None
    return {
        tool["name"]: tool["annotations"]
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, dict)
        and isinstance(tool.get("name"), str)
        and isinstance(tool.get("annotations"), dict)
    }


def read_names(document: Any) -> dict[str, str]:
    """Tool id → listed name of a `/v1/load` answer; what cannot be read is left out."""
    tools = document.get("tools") if isinstance(document, dict) else None
    return {
        tool["_meta"]["toolcrib.dev/tool-id"]: tool["name"]
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, dict)
        and isinstance(tool.get("name"), str)
        and isinstance(tool.get("_meta"), dict)
        and isinstance(tool["_meta"].get("toolcrib.dev/tool-id"), str)
    }


def read_hits(document: Any) -> tuple[str, ...]:
    """The listed names of a `/v1/search` answer, best first; what cannot be read is left out."""
    tools = document.get("tools") if isinstance(document, dict) else None
    return tuple(
        hit["name"]
        for hit in (tools if isinstance(tools, list) else ())
        if isinstance(hit, dict) and isinstance(hit.get("name"), str)
    )


def read_unavailable(document: Any) -> tuple[str, ...]:
    """Ids of the hits of a `/v1/search` answer whose backends are down."""
    tools = document.get("tools") if isinstance(document, dict) else None
    return tuple(
        hit["tool_id"]
        for hit in (tools if isinstance(tools, list) else ())
        if isinstance(hit, dict) and isinstance(hit.get("tool_id"), str) and hit.get("unavailable") is True
    )


def _tool(entry: Any) -> DiscoveredTool | None:
    if not isinstance(entry, dict):
        return None
    name, endpoint = entry.get("name"), entry.get("endpoint")
    if not (isinstance(name, str) and _LISTED_NAME.fullmatch(name)):
        return None
    if not (isinstance(endpoint, str) and _ENDPOINT.fullmatch(endpoint)):
        return None
    parameters = entry.get("parameters")
    host, port = entry.get("host"), entry.get("port")
    return DiscoveredTool(
        name=name,
        endpoint=endpoint,
        description=_text(entry.get("description")),
        parameters=_parameters(parameters if isinstance(parameters, dict) else {}),
        scopes=_strings(entry.get("scopes")),
        returns=_text(entry.get("returns")),
        host=host if isinstance(host, str) and _HOST.fullmatch(host) else "",
        port=port if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536 else 0,
    )


def _parameters(found: Mapping[str, Any]) -> tuple[Parameter, ...]:
    read: list[Parameter] = []
    for name, about in list(found.items())[:MAX_PARAMETERS]:
        about = about if isinstance(about, dict) else {}
        required = about.get("required") is True
        read.append(Parameter(name, _types(about.get("type")), _text(about.get("description")), required))
    return tuple(read)


def _types(value: Any) -> tuple[str, ...]:
    """One word, several with `|` between them, or a list; `any` among them says nothing."""
    types = tuple(t.strip() for t in value.split("|")) if isinstance(value, str) else _strings(value)
    return () if "any" in types or "" in types else types


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value[:MAX_DESCRIPTION] if isinstance(value, str) else ""
