"""Digests of a tool: what a model reads, and what a call depends on.

The canonical form is JSON with sorted keys, no spaces and UTF-8 (in the manner of RFC 8785). Numbers are written as
they come back from the Kubernetes API, which reads them as int64 or float64 and writes 1.0 as 1: so a tool has one
digest, read from a file or from a cluster.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

_INT64 = range(-(2**63), 2**63)


def canonical(value: Any) -> bytes:
    """`value` as canonical JSON.

    Raises:
        ValueError: NaN, infinities or lone surrogates, which have no JSON form; numbers beyond float64.
    """
    return json.dumps(
        _plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _plain(value: Any) -> Any:
    """`value` with every number as a round trip through int64 and float64 leaves it."""
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, int) and value in _INT64:
        return value
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("a number beyond float64") from None
    # Go writes float64 without exponent below 1e21 (encoding/json), with the shortest digits that read back
    return int(Decimal(repr(number))) if number.is_integer() and abs(number) < 1e21 else number


def sha256(value: Any) -> str:
    """`sha256:` and the hash of the canonical JSON of `value`. Raises ValueError as `canonical` does."""
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
    replaced_by: str | None = None,
    message: str | None = None,
    source_digests: dict[str, str] | None = None,
) -> str:
    """sha256 over what a model reads, what the search index is built from, and what else its server says of the tool."""
    # what came later is left out where it says nothing, so that every tool keeps the digest it had
    later = {"replacedBy": replaced_by, "message": message, "sourceDigests": source_digests or None}
    return sha256(
        {key: value for key, value in later.items() if value is not None}
        | {
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


def route_digest(
    *,
    backend: dict[str, Any] | None,
    scopes: tuple[str, ...],
    scope_match: str,
    fallback: tuple[str, ...] = (),
) -> str:
    """sha256 over what a call depends on: backend, credential reference, scopes, scopeMatch, fallback."""
    later = {"fallback": list(fallback)} if fallback else {}
    return sha256({"backend": backend, "scopes": sorted(scopes), "scopeMatch": scope_match, **later})


def approval_digest(digest: str, route_digest: str) -> str:
    """sha256 over both digests of a tool: what `spec.approvedDigest` must be for the tool to be used."""
    return sha256({"digest": digest, "routeDigest": route_digest})
