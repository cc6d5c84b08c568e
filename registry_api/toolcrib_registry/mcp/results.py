"""Results of requests, encoded as the revision has them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import orjson

from toolcrib_registry.calls.backends.port import (
    Binary,
    Block,
    Embedded,
    InputRequired,
    ResourceLink,
    Text,
    ToolAnswer,
)
from toolcrib_registry.mcp.protocol import SERVER_META, is_stateless
from toolcrib_registry.upstream.messages import encoded

SHORT_MS, LONG_MS = 1_000, 3_600_000
"""For how long a client may keep a list that may change, and an answer that does not while the registry is the same. A call
is decided each time."""
_UNNAMED = "toolcrib:answer"
"""The URI of bytes that came without one."""
CODE_META, RETRY_META = "toolcrib.dev/code", "toolcrib.dev/retry-after"
"""Keys of a failed call's `_meta`: the problem's code, and seconds after which another try makes sense."""


def complete(
    version: str,
    fields: Mapping[str, Any],
    *,
    meta: Mapping[str, Any] | None = None,
    keep_ms: int | None = None,
) -> bytes:
    """A result of `fields`; `keep_ms`: for how long a client may keep it for itself, where it may."""
    made = dict(fields)
    if is_stateless(version):
        made["resultType"] = "complete"
        made["_meta"] = {**(meta or {}), **SERVER_META}
        if keep_ms is not None:
            made |= {"ttlMs": keep_ms, "cacheScope": "private"}
    elif meta:
        made["_meta"] = dict(meta)
    return encoded(made)  # servers may send integers that orjson does not write


def of_tool(version: str, answer: ToolAnswer) -> bytes:
    """What a tool answered."""
    fields: dict[str, Any] = {"content": content(answer)}
    if answer.is_json and answer.raw and (is_stateless(version) or _is_object(answer.raw)):
        fields["structuredContent"] = orjson.Fragment(answer.raw)
    if answer.is_error:
        fields["isError"] = True
    return complete(version, fields, meta=answer.meta)


def of_question(question: InputRequired, state: str | None) -> bytes:
    """What a tool asks its caller's client, in the stateless era. `state` is what the client gives back, sealed."""
    fields: dict[str, Any] = {"resultType": "input_required", "_meta": SERVER_META}
    if question.requests:
        fields["inputRequests"] = dict(question.requests)
    if state is not None:
        fields["requestState"] = state
    return orjson.dumps(fields)


def of_value(version: str, value: Mapping[str, Any]) -> bytes:
    """A value of ours as a tool's answer: as text, and structured."""
    raw = orjson.dumps(value)
    return complete(
        version,
        {"content": [{"type": "text", "text": raw.decode()}], "structuredContent": orjson.Fragment(raw)},
    )


def of_failure(version: str, code: str, text: str, retry_after: int | None = None) -> bytes:
    """A call that failed: told to the model, which can do something about it."""
    meta: dict[str, Any] = {CODE_META: code}
    if retry_after is not None:
        meta[RETRY_META] = retry_after
    return complete(version, {"content": [{"type": "text", "text": text}], "isError": True}, meta=meta)


def of_misfit(version: str, code: str, text: str, answer: ToolAnswer) -> bytes:
    """An answer that is not what its tool says it is: an error for the model, which gets the answer as well."""
    told = [{"type": "text", "text": text}, *content(answer)]
    return complete(
        version, {"content": told, "isError": True}, meta={**(answer.meta or {}), CODE_META: code}
    )


def content(answer: ToolAnswer) -> list[dict[str, Any]]:
    """What a tool answered, as content blocks."""
    return [block_json(block) for block in answer.content]


def shown(value: Any) -> str:
    """A JSON value as text."""
    return orjson.dumps(value).decode()


def _is_object(raw: bytes) -> bool:
    """Whether JSON is an object: before 2026-07-28 nothing else may be structured content."""
    return raw.lstrip(b" \t\r\n")[:1] == b"{"


def block_json(block: Block) -> dict[str, Any]:
    """A content block in MCP's words."""
    made: dict[str, Any]
    match block:
        case Text():
            made = {"type": "text", "text": block.text}
        case ResourceLink():
            made = {"type": "resource_link", "uri": block.uri, "name": block.name, **_given(
                title=block.title, description=block.description, mimeType=block.media_type, size=block.size,
                icons=block.icons,
            )}  # fmt: skip
        case Binary():
            data, kind = base64.b64encode(block.data).decode(), block.media_type.partition("/")[0]
            if kind in ("image", "audio"):
                made = {"type": kind, "data": data, "mimeType": block.media_type}
            else:
                made = _resource(Embedded(_UNNAMED, block.data, block.media_type))
        case Embedded():
            made = _resource(block)
    return {**made, **_given(annotations=block.annotations, _meta=block.meta)}


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _resource(block: Embedded) -> dict[str, Any]:
    made: dict[str, Any] = {"uri": block.uri}
    if block.media_type is not None:
        made["mimeType"] = block.media_type
    if isinstance(block.content, str):
        made["text"] = block.content
    else:
        made["blob"] = base64.b64encode(block.content).decode()
    if block.content_meta is not None:
        made["_meta"] = dict(block.content_meta)
    return {"type": "resource", "resource": made}
