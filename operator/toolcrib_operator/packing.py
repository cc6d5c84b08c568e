"""The forms in which the World keeps what it seldom reads: a Tool as condensed JSON, and statuses as JSON. Pure.

As objects of Python a small Tool takes 3 KiB and its status as much again; both are read a few times for each change.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from toolcrib.resources.tools import ALWAYS, CONFIRM, Tool
from toolcrib.wire.condensed import condensed, expanded, size
from toolcrib.wire.publish import PublishedTool, unpacked

_SCHEMAS = frozenset({"input_schema", "output_schema"})
_NO_HINTS: dict[str, bool] = {}
_NO_DIGESTS: dict[str, str] = {}
_FIELDS = set(PublishedTool.model_fields)
"""Of all that is published: which fields were set matters to nobody, and a set of its own takes 2 KiB a tool."""

_LEVELS = 100
"""Levels of nesting that are read in any case."""


@dataclass(frozen=True, slots=True)
class PackedTool:
    """The spec of a Tool that was found valid. Equal to another one's exactly where the specs are equal."""

    spec: bytes
    """Without the schemas, and without what is at its default."""
    input_schema: bytes
    output_schema: bytes | None
    confirm: bool = False
    """Whether a person confirms each call: the one annotation that counts."""

    @property
    def size(self) -> int:
        """Bytes of the spec as JSON, about."""
        return sum(map(size, (self.spec, self.input_schema, self.output_schema or b"")))

    @property
    def most_values(self) -> int:
        """JSON values in the input schema at most, without reading it: each but the first follows a colon, comma or bracket."""
        text = expanded(self.input_schema)
        return 1 + sum(map(text.count, (b":", b",", b"[")))

    def read(self, metadata: Mapping[str, Any], api_version: str, *, schemas: bool) -> Tool:
        """The Tool, with this metadata; without `schemas` its input schema is empty."""
        spec = from_json(expanded(self.spec))
        spec["inputSchema"] = unpacked(self.input_schema) if schemas else {}
        if schemas and self.output_schema is not None:
            spec["outputSchema"] = unpacked(self.output_schema)
        if self.confirm:
            metadata = {**metadata, "annotations": {CONFIRM: ALWAYS}}
        return Tool.model_validate(
            {"apiVersion": api_version, "kind": "Tool", "metadata": metadata, "spec": spec}
        )


def packed_tool(tool: Tool, *, condense: bool) -> PackedTool | None:
    """What is kept of a Tool; None where JSON cannot carry it: that is refused, with a reason, when it is assessed.

    Args:
        tool: it was found valid.
        condense: whether texts are compressed.
    """
    spec = tool.spec
    keep = condensed if condense else bytes
    try:
        texts = spec.model_dump_json(
            by_alias=True, exclude=set(_SCHEMAS), exclude_none=True, exclude_defaults=True
        ).encode()
        output = None if spec.output_schema is None else keep(_same(spec.output_schema))
        return PackedTool(keep(texts), keep(_same(spec.input_schema)), output, tool.confirm)
    except (PydanticSerializationError, ValueError):
        return None


def _same(schema: dict[str, Any]) -> bytes:
    """JSON of `schema`; ValueError where something else would be read from it: keys in YAML may be numbers."""
    text = to_json(schema)
    if from_json(text) != schema:
        raise ValueError("not plain JSON")
    return text


def _readable(value: Any) -> bytes:
    """JSON of `value`; ValueError where it could not be read again: more levels can be written than read."""
    text = to_json(value)
    if text.count(b"{") + text.count(b"[") > _LEVELS:
        from_json(text)
    return text


def packed_status(status: Mapping[str, Any]) -> bytes:
    """A status as it is kept; what JSON cannot carry counts as no status, and is written again."""
    try:
        return condensed(_readable(status)) if status else b""
    except (PydanticSerializationError, ValueError):
        return b""


def read_status(kept: bytes) -> dict[str, Any]:
    """What `packed_status` made it from."""
    read: dict[str, Any] = from_json(expanded(kept)) if kept else {}
    return read


def shared(published: PublishedTool, tool_id: str, kept: PackedTool) -> PublishedTool:
    """What is published of a Tool, with the schemas and names of what is kept of it in place of copies.

    Args:
        published: made of `kept`.
        tool_id: as it is kept elsewhere.
        kept: the Tool.
    """
    update: dict[str, Any] = {
        "tool_id": tool_id,
        "namespace": sys.intern(published.namespace),
        "scopes": tuple(map(sys.intern, published.scopes)),
        "packed_input": kept.input_schema,
        "packed_output": kept.output_schema,
    }
    if not published.annotations:
        update["annotations"] = _NO_HINTS
    # the instructions of a server are one text for all its tools
    found = {key: sys.intern(value) for key, value in published.source_digests.items()}
    update["source_digests"] = found or _NO_DIGESTS
    made = published.model_copy(update=update)
    object.__setattr__(made, "__pydantic_fields_set__", _FIELDS)
    return made
