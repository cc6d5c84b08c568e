"""Judging the result of `tools/call`: pure. What is not a tool's answer becomes a typed error."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from toolcrib_registry.calls.backends import nesting
from toolcrib_registry.calls.backends.port import (
    Binary,
    Block,
    Embedded,
    InputRequired,
    ResourceLink,
    Text,
    ToolAnswer,
)
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.echoed_secrets import Secrets
from toolcrib_registry.calls.errors import UpstreamProtocol
from toolcrib_registry.upstream import messages
from toolcrib_registry.upstream.protocol import OURS, foreign, scrubbed, text_of

_MOST_QUESTIONS = 64
_JSON, _PLAIN = "application/json", "text/plain"


def judged(
    fields: Mapping[str, Any],
    text: bytes,
    *,
    limits: CallBounds,
    elapsed: float,
    secrets: tuple[str, ...],
) -> ToolAnswer:
    """The tool's answer in a result.

    Args:
        fields: the result.
        text: the message that it came in.
        limits: bounds on depth.
        elapsed: seconds so far.
        secrets: what was sent to authenticate; an answer that repeats one is not passed on.

    Raises:
        UpstreamProtocol: it is none, or must not be passed on.
    """
    nesting.check(fields, limits.answer_depth, text)
    if Secrets.of(secrets).repeated_in(text):
        raise UpstreamProtocol("the backend's response repeats its credential and is withheld")
    kind = fields.get("resultType", "complete")
    if kind == "input_required":
        return ToolAnswer(b"", "", is_json=False, elapsed=elapsed, input_required=question_of(fields))
    if kind != "complete":
        raise UpstreamProtocol(f"the server's result is of an unknown type ({text_of(kind)})")
    content = scrubbed(fields.get("content", []))
    if type(content) is not list:
        raise _broken("content is not a list")
    blocks = tuple(_block(each) for each in content)
    is_json = "structuredContent" in fields
    if is_json:
        raw, media_type = messages.encoded(fields["structuredContent"]), _JSON
    else:
        raw, media_type = _of_one(blocks)
    meta = _mapping(fields, "_meta") or {}
    return ToolAnswer(
        raw,
        media_type,
        is_json,
        blocks,
        is_error=fields.get("isError") is True,
        elapsed=elapsed,
        meta=foreign(meta) or None,
    )


def _of_one(blocks: tuple[Block, ...]) -> tuple[bytes, str]:
    """What the one block says, and its media type; nothing where there are several."""
    match blocks:
        case (Text() as block,):
            return block.text.encode(errors="replace"), _PLAIN
        case (Binary() as block,):
            return block.data, block.media_type
    return b"", ""


def question_of(fields: Mapping[str, Any]) -> InputRequired:
    """What a result asks for.

    Raises:
        UpstreamProtocol: it asks for nothing that can be passed on.
    """
    requests, state = fields.get("inputRequests", {}), fields.get("requestState")
    if type(requests) is not dict or len(requests) > _MOST_QUESTIONS:
        raise _broken(f"inputRequests is not an object of at most {_MOST_QUESTIONS} requests")
    for key, each in requests.items():
        if type(each) is not dict or type(each.get("method")) is not str:
            raise _broken("one of inputRequests is not a request")
        if key.startswith(OURS):  # a client would take it for a question of the registry
            raise _broken(f"the key of one of inputRequests begins with {OURS}")
    if not isinstance(state, str | None) or (state is None and not requests):
        raise _broken("it asks for input, and for none")
    return InputRequired(scrubbed(requests), state)


def _block(value: Any) -> Block:
    kind = value.get("type") if type(value) is dict else None
    about: dict[str, Any] = {}
    if type(value) is dict:
        about = {"annotations": _mapping(value, "annotations"), "meta": _mapping(value, "_meta")}
    match kind:
        case "text":
            return Text(_text(value, "text"), **about)
        case "image" | "audio":
            return Binary(_bytes(value, "data"), _text(value, "mimeType"), **about)
        case "resource_link":
            size, icons = value.get("size"), value.get("icons")
            return ResourceLink(
                _text(value, "uri"),
                _text(value, "name"),
                _maybe(value, "mimeType"),
                _maybe(value, "title"),
                _maybe(value, "description"),
                size if type(size) is int else None,
                icons=icons if type(icons) is list and all(type(icon) is dict for icon in icons) else None,
                **about,
            )
        case "resource":
            inner = value.get("resource")
            if type(inner) is not dict:
                raise _broken("a resource has no content")
            said = _text(inner, "text") if "text" in inner else _bytes(inner, "blob")
            uri, media_type = _text(inner, "uri"), _maybe(inner, "mimeType")
            return Embedded(uri, said, media_type, content_meta=_mapping(inner, "_meta"), **about)
    raise _broken(f"a content block is of an unknown type ({text_of(kind)})")


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    found = value.get(key)
    return found if type(found) is dict else None


def _maybe(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None


def _text(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str):
        raise _broken(f"a content block lacks {key}")
    return found


def _bytes(value: Mapping[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(_text(value, key), validate=True)
    except (binascii.Error, ValueError):
        raise _broken(f"{key} of a content block is not base64") from None


def _broken(why: str) -> UpstreamProtocol:
    return UpstreamProtocol(f"the server's result is not a tool's answer: {why}")
