"""What a server.json document and a registry's answers must be, as far as ours use it.

Written from the published forms of 2025-12-11 (server.json) and 2025-12-01 (the registry API); unknown fields are refused,
so that one which is misspelt is found.
"""

from typing import Any

_URI = {"type": "string", "format": "uri", "pattern": r"^https?://[^\s]+$"}
_META = {"type": "object", "propertyNames": {"pattern": r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$"}}
SERVER: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["name", "description", "version"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        "name": {
            "type": "string",
            "minLength": 3,
            "maxLength": 200,
            "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$",
        },
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "allOf": [{"not": {"const": "latest"}}, {"not": {"pattern": r"[\^~<>*=]|\.x"}}],
        },
        "websiteUrl": _URI,
        "remotes": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "url"],
                "additionalProperties": False,
                "properties": {"type": {"enum": ["streamable-http", "sse"]}, "url": _URI},
            },
        },
        "_meta": _META,
    },
}
ANSWER: dict[str, Any] = {
    "type": "object",
    "required": ["server", "_meta"],
    "additionalProperties": False,
    "properties": {
        "server": SERVER,
        "_meta": {
            **_META,
            "properties": {
                "io.modelcontextprotocol.registry/official": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "status": {"enum": ["active", "deprecated", "deleted"]},
                        "isLatest": {"type": "boolean"},
                    },
                }
            },
        },
    },
}
PAGE: dict[str, Any] = {
    "type": "object",
    "required": ["servers", "metadata"],
    "additionalProperties": False,
    "properties": {
        "servers": {"type": "array", "items": ANSWER},
        "metadata": {
            "type": "object",
            "required": ["count"],
            "additionalProperties": False,
            "properties": {"count": {"type": "integer"}, "nextCursor": {"type": "string", "minLength": 1}},
        },
    },
}
