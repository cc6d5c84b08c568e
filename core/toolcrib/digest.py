"""Digests of a tool: what a model reads, and what a call depends on.

The canonical form is JSON with sorted keys, no spaces and UTF-8 (in the manner of RFC 8785; numbers are written
as Python's json writes them, which is shortest round trip as there).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(value: Any) -> bytes:
    """`value` as canonical JSON.

    Raises:
        ValueError: NaN, infinities or lone surrogates, which have no JSON form.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _sha256(value: Any) -> str:
    return f"sha256:{hashlib.sha256(canonical(value)).hexdigest()}"


def definition_digest(
    *,
    name: str,
    title: str | None,
    description: str,
    input_schema: dict[str, Any],
    output_schema: dict[str, Any] | None,
    returns: str | None,
    annotations: dict[str, bool],
    server: str | None = None,
    tags: tuple[str, ...] = (),
    examples: tuple[str, ...] = (),
) -> str:
    """sha256 over what a model reads, and what the search index is built from."""
    return _sha256(
        {
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": input_schema,
            "outputSchema": output_schema,
            "returns": returns,
            "annotations": annotations,
            "server": server,
            "tags": list(tags),
            "examples": list(examples),
        }
    )


def route_digest(*, backend: dict[str, Any] | None, scopes: tuple[str, ...], scope_match: str) -> str:
    """sha256 over what a call depends on: backend, credential reference, scopes, scopeMatch."""
    return _sha256({"backend": backend, "scopes": sorted(scopes), "scopeMatch": scope_match})
