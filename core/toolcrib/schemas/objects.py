"""A tool's schema in the form that MCP clients demand: the root is an object, and no property is a boolean.

Both mean the same as before. Clients refuse a whole list of tools because of one schema of another form: the root's type is
required by the protocol (MCP 2025-11-25, Tool), and the TypeScript SDK 1 takes objects for properties alone.
"""

from __future__ import annotations

from typing import Any

_NEVER: dict[str, Any] = {"not": {}}


def of_objects(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema`, itself where it has the form already. One whose root says another type keeps it."""
    properties = schema.get("properties")
    if isinstance(properties, dict) and any(isinstance(inner, bool) for inner in properties.values()):
        told = {name: _told(inner) for name, inner in properties.items()}
        schema = {**schema, "properties": told}
    return {"type": "object", **schema} if schema.get("type") is None else schema


def _told(schema: Any) -> Any:
    if isinstance(schema, bool):
        return {} if schema else _NEVER
    return schema
