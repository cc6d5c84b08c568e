"""A caller's view as `tools/list` has it: encoded once for all who see the same, in pages, within a bound of bytes."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import orjson

from toolcrib.schemas.objects import of_objects
from toolcrib.view import View
from toolcrib.wire.condensed import expanded
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.mcp.protocol import INVALID_PARAMS, RpcError, is_stateless
from toolcrib_registry.policy.single_flight import SingleFlight
from toolcrib_registry.policy.state import is_long

PAGE = 200
PAGE_BYTES = 8 << 20
"""Bytes of one page: one with large tools ends earlier than `PAGE` says."""
BYTES = 64 << 20
_EACH = 256
"""Estimated bytes that a tool takes besides its text."""
_OBJECT = b'{"type":"object"'
_BOOLEANS = (b":true", b":false")


class ToolList:
    """Tools of one view in the order of their ids: their ids, their names for models, and their definitions.

    Args:
        ids, names, texts: of each tool.
    """

    def __init__(self, ids: Sequence[str], names: Sequence[str], texts: Sequence[bytes]) -> None:
        self.ids, self.names = tuple(ids), tuple(names)
        # one text, so that a page is one piece of it
        self._whole = b",".join(texts)
        self._ends = tuple(accumulate(len(text) + 1 for text in texts))

    @cached_property
    def by_name(self) -> Mapping[str, str]:
        """Name for models → tool id."""
        return dict(zip(self.names, self.ids, strict=True))

    @cached_property
    def digest(self) -> str:
        """Names the content."""
        return hashlib.sha256(self._whole).hexdigest()

    @property
    def weight(self) -> int:
        """Estimated bytes."""
        return len(self._whole) + _EACH * len(self.ids)

    def prepare(self) -> ToolList:
        """Make now what else would be made on the event loop when it is first asked for."""
        _ = self.by_name, self.digest, self.weight
        return self

    def page(self, after: str) -> tuple[bytes, int, str | None]:
        """Tools after an id, as JSON: the array, how many, and the id after which the next page begins, if there is one."""
        start = bisect_right(self.ids, after)
        begin = self._ends[start - 1] if start else 0
        fitting = bisect_right(self._ends, begin + PAGE_BYTES, start)
        end = min(max(fitting, start + 1), start + PAGE, len(self.ids))
        if end == start:
            return b"[]", 0, None
        more = self.ids[end - 1] if end < len(self.ids) else None
        return b"[%b]" % self._whole[begin : self._ends[end - 1] - 1], end - start, more


class ToolLists:
    """The lists of views, the latest used; equal views share one. Used from one event loop only.

    Args:
        most: estimated bytes of all together; the latest is kept even if it alone is larger.
    """

    def __init__(self, most: int = BYTES) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, bool], ToolList] = OrderedDict()
        self._making = SingleFlight()
        self.size = 0

    async def of(self, view: View, version: str) -> ToolList:
        """The list of `view` for clients that speak `version`; a long one is made in a thread."""
        key = (view.digest, is_stateless(version))
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
            return found
        make = partial(made, view, stateless=key[1])
        if not is_long(view.tools.values()):
            return self._keep(key, make())
        return self._keep(key, await self._making.once(key, partial(asyncio.to_thread, make)))

    def _keep(self, key: tuple[str, bool], found: ToolList) -> ToolList:
        if key not in self._known:
            self._known[key] = found
            self.size += found.weight
            while self.size > self._most and len(self._known) > 1:
                _, gone = self._known.popitem(last=False)
                self.size -= gone.weight
        return found


def made(view: View, *, stateless: bool) -> ToolList:
    """The list of `view`."""
    ids = tuple(view.tools)
    names = tuple(map(view.model_name, ids))
    texts = tuple(
        definition(view.tools[i], name, stateless=stateless) for i, name in zip(ids, names, strict=True)
    )
    return ToolList(ids, names, texts).prepare()


def definition(tool: PublishedTool, name: str, *, stateless: bool) -> bytes:
    """A tool under its name for models (MCP, Tool). Its schemas go in as the text that the snapshot holds."""
    shown: dict[str, Any] = {"name": name}
    if tool.title:
        shown["title"] = tool.title
    shown["description"] = tool.description
    shown["inputSchema"] = _of_objects(expanded(tool.packed_input))
    if tool.packed_output is not None and shows_output(tool, stateless=stateless):
        output = expanded(tool.packed_output)
        shown["outputSchema"] = _of_objects(output) if _is_of_objects(output) else orjson.Fragment(output)
    if tool.annotations:
        shown["annotations"] = tool.annotations
    shown["_meta"] = {"toolcrib.dev/tool-id": tool.tool_id}
    return orjson.dumps(shown)


def shows_output(tool: PublishedTool, *, stateless: bool) -> bool:
    """Whether the tool is listed with what it answers: before 2026-07-28 that is an object or has no schema."""
    return tool.packed_output is not None and (stateless or _is_of_objects(expanded(tool.packed_output)))


def cursor(after: str) -> str:
    """An opaque text for where a list goes on."""
    return base64.urlsafe_b64encode(after.encode()).decode().rstrip("=")


def after(cursor_: str | None) -> str:
    """What a list goes on after. A view that has changed meanwhile goes on there, too: nothing is listed twice.

    Raises:
        RpcError: it is no cursor.
    """
    if cursor_ is None:
        return ""
    try:
        return base64.b64decode(cursor_ + "=" * (-len(cursor_) % 4), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise RpcError(INVALID_PARAMS, "Invalid cursor.") from None


def _of_objects(schema: bytes) -> orjson.Fragment:
    """A schema in the form that clients demand; most have it, and are not read for it."""
    if schema.startswith(_OBJECT) and not any(word in schema for word in _BOOLEANS):
        return orjson.Fragment(schema)
    read = orjson.loads(schema)
    formed = of_objects(read)
    return orjson.Fragment(schema if formed is read else orjson.dumps(formed))


def _is_of_objects(schema: bytes) -> bool:
    return bool(orjson.loads(schema).get("type") == "object")
