"""OpenAPI documents of a test, and what becomes of them."""

from __future__ import annotations

from typing import Any

from toolcrib.schemas import safety
from toolcrib_cli.imports.openapi.importing import Result, Wanted, imported

SECRET = "ghp-0123456789"
OK = {"200": {"description": "OK"}}
ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}


def document(paths: dict[str, Any], version: str = "3.0.3", **fields: Any) -> dict[str, Any]:
    return {
        "openapi": version,
        "info": {"title": "Orders", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": paths,
        **fields,
    }


def operation(**fields: Any) -> dict[str, Any]:
    return {"operationId": "op", "summary": "Does something useful", "responses": OK, **fields}


def body(schema: Any, kind: str = "application/json", **fields: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema, **fields}}}}


def whole(content: dict[str, Any], **wanted: Any) -> Result:
    return imported(content, Wanted(**wanted))


def one(
    method: str = "post", path: str = "/x", version: str = "3.0.3", /, extra: Any = None, **fields: Any
) -> dict[str, Any]:
    """The spec of the only Tool."""
    result = whole(document({path: {method: operation(**fields)}}, version, **(extra or {})))
    assert [why for _, why in result.left_out] == []
    (manifest,) = result.manifests
    return dict(manifest["spec"])


def why(method: str = "post", path: str = "/x", /, extra: Any = None, **fields: Any) -> str:
    """Why there is no Tool."""
    result = whole(document({path: {method: operation(**fields)}}, **(extra or {})))
    assert result.manifests == []
    ((_, reason),) = result.left_out
    return reason


def schema(given: dict[str, Any], version: str = "3.0.3", **components: Any) -> Any:
    """What a property of a body becomes."""
    spec = one(
        "post",
        "/x",
        version,
        {"components": {"schemas": components}},
        **body({"type": "object", "properties": {"a": given}}),
    )
    safety.check(spec["inputSchema"])
    return spec["inputSchema"]["properties"]["a"]
