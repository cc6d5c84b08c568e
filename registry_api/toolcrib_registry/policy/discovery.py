"""The simple discovery protocol's shapes: a tool as exactly eight keys, and the answer of `GET /`.

Pure. `host`, `port` and `endpoint` are the registry's own configured address and call route, so enforcement sits
there; nothing of the request enters. (Issue 3, Contract of the simple discovery protocol.)
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Any
from urllib.parse import quote

import orjson

from toolcrib.model_names import is_plain
from toolcrib.names import RESERVED_TOOL_NAMES
from toolcrib.version import __version__
from toolcrib.view import View
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.failures import Failure
from toolcrib_registry.policy.state import PolicyState
from toolcrib_registry.policy.view_cache import Answer, CallerView, Content
from toolcrib_registry.settings import RegistrySettings

SERVICE = "toolcrib"
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def entry(tool: PublishedTool, name: str, settings: RegistrySettings) -> dict[str, Any]:
    """The eight keys of `tool`, listed as `name`."""
    return {
        "name": name,
        "endpoint": endpoint(tool, name),
        "scopes": list(tool.scopes),
        "description": tool.description,
        "parameters": parameters(tool.input_schema),
        "returns": returns(tool),
        "host": settings.public_host,
        "port": settings.public_port,
    }


def endpoint(tool: PublishedTool, name: str) -> str:
    """The call route of `tool`.

    By id where the listed name would not survive in a path, and where the name for models is made of the id, which clients
    of this protocol learn here.
    """
    by_name = is_plain(name) and name not in RESERVED_TOOL_NAMES
    return "/tools/" + quote(name if by_name else tool.tool_id, safe="/")


def parameters(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Property → {type, description, required} of an input schema; anything odd in it is read as `any`."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return {}
    needed = (
        frozenset(r for r in required if isinstance(r, str)) if isinstance(required, list) else frozenset()
    )
    return {
        name: {
            "type": type_of(inner),
            "description": _text(inner.get("description")) if isinstance(inner, dict) else "",
            "required": name in needed,
        }
        for name, inner in properties.items()
    }


def type_of(schema: Any) -> str:
    """One word (or several with `|`) for the values that `schema` admits."""
    if not isinstance(schema, dict):
        return "any"
    kind = schema.get("type")
    if isinstance(kind, str):
        return kind
    found: list[str] = []
    if isinstance(kind, list):
        found = [k for k in kind if isinstance(k, str) and k != "null"]
    elif isinstance(schema.get("enum"), list):
        found = [_TYPES.get(type(v), "any") for v in schema["enum"] if v is not None]
    elif "const" in schema:
        found = [_TYPES.get(type(schema["const"]), "any")]
    else:
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                found = [t for t in map(type_of, schema[key]) if t != "null"]
                break
    return "any" if not found or "any" in found else "|".join(dict.fromkeys(found))


def returns(tool: PublishedTool) -> str:
    """What comes back, in words: the tool's own, else what its output schema says."""
    if tool.returns:
        return tool.returns
    output = tool.output_schema
    if not output:
        return ""
    if description := _text(output.get("description")):
        return description
    properties = output.get("properties")
    listed = ", ".join(properties) if isinstance(properties, dict) else ""
    return f"{type_of(output)} with {listed}" if listed else type_of(output)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def listed_names(tools: Collection[PublishedTool], view: View) -> list[str]:
    """The name of each of `tools`, sorted.

    As `GET /` lists it where it is in the view, else its own where none of the others shares it, else its id.
    """
    sharing = Counter(tool.name for tool in tools)
    return sorted(
        view.listed_name(tool.tool_id)
        if tool.tool_id in view.tools
        else (tool.name if sharing[tool.name] == 1 else tool.tool_id)
        for tool in tools
    )


def total_registered(caller_view: CallerView, settings: RegistrySettings) -> int:
    """How many tools there are, as far as the caller is told (`discovery.totals`)."""
    if caller_view.identity is not None and settings.discovery.totals == "all":
        return caller_view.snapshot.active_tools
    return len(caller_view.view.tools)


async def answer(state: PolicyState, caller_view: CallerView, settings: RegistrySettings) -> Answer:
    """The body of `GET /` and its ETag, made once for a view of a revision.

    Raises:
        Failure: `list_too_large`; nothing was made.
    """
    content = caller_view.content
    if content.answer is not None:
        return content.answer
    if content.listed_bytes is not None:
        _check(content, settings)
    return await state.answer(caller_view, partial(encoded, caller_view, settings))


def encoded(caller_view: CallerView, settings: RegistrySettings) -> Answer:
    """The same, made now."""
    view, content = caller_view.view, caller_view.content
    content.listed_bytes = listed_bytes(view, settings)
    _check(content, settings)
    head = orjson.dumps(
        {
            "service": SERVICE,
            "version": __version__,
            "protocol": "MCP",
            "authenticated": caller_view.identity is not None,
            "scopes": caller_view.scopes,
            "total_available": len(view.names),
            "total_registered": total_registered(caller_view, settings),
        }
    )
    # one by one, and never twice: as objects a tool takes many times its text
    written = io.BytesIO()
    written.write(head[:-1] + b',"tools":')
    comma = b"["
    for name, tool_id in sorted(view.names.items()):
        written.write(comma + orjson.dumps(entry(view.tools[tool_id], name, settings)))
        comma = b","
    written.write(b"]}" if view.names else b"[]}")
    body = written.getvalue()
    return body, b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode()


def listed_bytes(view: View, settings: RegistrySettings) -> int:
    """How long the list of `view` will be at most: exactly where a rough bound exceeds the limit, as far as the limit."""
    limit, size = settings.limits.list_bytes, sum(map(_at_most, view.tools.values()))
    if size <= limit:
        return size
    size = 0
    for name, tool_id in view.names.items():
        size += 1 + len(orjson.dumps(entry(view.tools[tool_id], name, settings)))
        if size > limit:
            break
    return size


_ENTRY, _PARAMETER = 1_024, 64
"""Bytes of an entry and of a parameter beyond their own texts, at most."""


def _at_most(tool: PublishedTool) -> int:
    """What the entry of `tool` takes at most, without reading its schemas: each key in them may be a parameter."""
    texts = len(orjson.dumps((tool.tool_id, tool.name, tool.description, tool.returns, tool.scopes)))
    output = 0 if tool.returns else len(tool.packed_output or b"")
    return _ENTRY + 2 * texts + output + len(tool.packed_input) + _PARAMETER * tool.packed_input.count(b'":')


def _check(content: Content, settings: RegistrySettings) -> None:
    limit = settings.limits.list_bytes
    if (content.listed_bytes or 0) > limit:
        raise Failure(
            "list_too_large",
            f"The list of your {len(content.view.tools):,} tools is larger than {limit:,} bytes. Read it in pages "
            "(GET /v1/tools), or search (POST /v1/search).",
        )
