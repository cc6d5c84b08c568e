"""Tools whose input schemas want arguments repeated in headers, as far as lists of tools have told."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from toolcrib_cli.bridge import headers, messages
from toolcrib_cli.bridge.headers import ParameterHeaders
from toolcrib_cli.bridge.messages import Message
from toolcrib_cli.bridge.upstream import Refusal, Upstream, body_of

_PAGES = 200


class MarkedTools:
    """Remembers `x-mcp-header` of the tools in lists that pass; reads the list itself where a call needs it."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._by_name: dict[str, ParameterHeaders] = {}
        self._numbers = itertools.count(1)

    def of(self, message: Message) -> ParameterHeaders:
        """What the tool that a message calls wants repeated."""
        name = message.params.get("name")
        return self._by_name.get(name, {}) if message.version is not None and isinstance(name, str) else {}

    def note(self, answer: Mapping[str, Any]) -> str | None:
        """Take in one page of a list; its cursor, if another page follows."""
        result = answer.get("result")
        if not isinstance(result, dict):
            return None
        listed = result.get("tools")
        for tool in listed if isinstance(listed, list) else ():
            name = tool.get("name") if isinstance(tool, dict) else None
            if isinstance(name, str):
                self._by_name.pop(name, None)
                if marked := headers.of_schema(tool.get("inputSchema")):
                    self._by_name[name] = marked
        cursor = result.get("nextCursor")
        return cursor if isinstance(cursor, str) else None

    async def learn(self, message: Message) -> bool:
        """Read the whole list, as the client of `message`; whether that was possible."""
        if message.method != "tools/call" or message.version is None:
            return False
        meta = {k: v for k, v in message.meta.items() if k.startswith("io.modelcontextprotocol/")}
        cursor: str | None = None
        for _ in range(_PAGES):
            params = {"_meta": meta} | ({"cursor": cursor} if cursor else {})
            number = f"toolcrib-mcp-{next(self._numbers)}"
            asking = messages.read(
                messages.line_of({"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": params})
            )
            try:
                async with self._upstream.post(asking.raw, headers.of_message(asking, None)) as response:
                    page = messages.decoded(await body_of(response))
            except Refusal:
                return False
            if not isinstance(page, dict) or "result" not in page:
                return False
            if not (cursor := self.note(page)):
                return True
        return True
