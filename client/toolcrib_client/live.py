"""What the adapters to frameworks offer a model: the live view, or four functions that find and call. Knows no framework."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio

from toolcrib_client import errors, exchange, functions
from toolcrib_client.aio import AsyncToolcrib
from toolcrib_client.functions import Answer, as_json, line
from toolcrib_client.results import LoadedTool

T = TypeVar("T")
HITS = 5
"""Tools that a search shows."""
LONGEST_PAUSE = 2.0
"""Seconds between two questions to a registry that does not answer."""
MOST_VALUES = 20_000
"""Of a schema with its references written out."""
_log = logging.getLogger("toolcrib_client")


def _function(name: str, description: str, /, **properties: Any) -> LoadedTool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return LoadedTool(name, name, name, description, schema)


_NAMES = {"type": "array", "items": {"type": "string"}}
DISCOVERY: tuple[LoadedTool, ...] = (
    _function("search_tools", "Find tools by what they should do.", query={"type": "string"}),
    _function("describe_tool", "Get the schemas of tools.", names=_NAMES),
    _function("ready", "Choose the tools for the task; an empty list if none fits.", names=_NAMES),
    _function(
        "call_tool", "Call a tool that is ready.", name={"type": "string"}, arguments={"type": "object"}
    ),
)
"""Offered instead of the view: a list that never changes, so that providers keep the prompt's prefix."""


class LiveTools:
    """The functions of one agent, listed anew whenever they are asked for, and the way to call them.

    Args:
        crib: whose tools.
        discovery: offer the functions of `DISCOVERY` instead of the view.
        patience: seconds to go on asking a registry that does not answer; calls are never repeated.
    """

    def __init__(self, crib: AsyncToolcrib, *, discovery: bool = False, patience: float = 30.0) -> None:
        self.crib: AsyncToolcrib = crib
        self.discovery: bool = discovery
        self.patience: float = patience
        self._known: dict[str, tuple[tuple[str, str], LoadedTool]] = {}
        self._made: dict[str, tuple[LoadedTool, Any]] = {}
        self._ids: dict[str, str] = {}
        self._ready: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    def for_run(self) -> LiveTools:
        """The same tools for one more run, where no tool is ready yet."""
        made = LiveTools(self.crib, discovery=self.discovery, patience=self.patience)
        made._known, made._told = self._known, self._told
        return made

    async def offered(self, make: Callable[[LoadedTool], T]) -> dict[str, T]:
        """What the model may use now, by function name; `make` raises for a schema that the framework refuses."""
        kept, self._made = self._made, {}
        for tool in DISCOVERY if self.discovery else await self._view():
            found = kept.get(tool.tool_id)
            if found is None or found[0] is not tool:
                try:
                    found = tool, make(tool)
                except Exception as error:
                    self._leave_out(tool.tool_id, f"{type(error).__name__}: {error}")
                    found = tool, None
            self._made[tool.tool_id] = found
        return {tool.model_name: made for tool, made in self._made.values() if made is not None}

    async def call(self, function: str, arguments: Mapping[str, Any] | str) -> Answer:
        """What a model asked for; arguments may be its JSON.

        Raises:
            ToolcribError: the token or the registry is wrong, which no model can mend.
        """
        try:
            given = functions.arguments(arguments)
            if self.discovery:
                return await self._discover(function, given)
            if function not in self._ids:
                return Answer(f"There is no tool {function!r} now.", failed=True)
            return await self._call(function, given)
        except functions.MISTAKES as error:
            return functions.failed(error)

    async def _call(self, function: str, arguments: Mapping[str, Any]) -> Answer:
        return Answer((await self.crib.call(self._ids.get(function, function), arguments)).result)

    async def _discover(self, function: str, given: Mapping[str, Any]) -> Answer:
        match function:
            case "search_tools":
                hits = (await self._patiently(lambda: self.crib.search(str(given["query"]), limit=HITS))).hits
                down = " (unavailable now)"
                shown = {hit.tool_id: hit.short_desc + down * hit.unavailable for hit in hits}
                tools = await self._load(list(shown))
                return Answer(
                    "\n".join(f"- {t.model_name}: {line(shown[t.tool_id])}" for t in tools) or "No tool fits."
                )
            case "describe_tool" | "ready":
                written = given["names"]
                names = [str(n) for n in ([written] if isinstance(written, str) else written)]
                tools = await self._load([self._ids.get(n, n) for n in names])
                if len(tools) < len(set(names)):
                    return Answer(
                        f"Refused: not all of {line(', '.join(names))} are your tools. Use names that a search has shown.",
                        failed=True,
                    )
                self._ready |= {t.model_name for t in tools} if function == "ready" else set()
                return Answer("\n".join(map(_described, tools)) or "Go on without a tool.")
            case "call_tool" if given["name"] not in self._ready:
                return Answer(
                    f"Refused: {line(str(given['name']))} is not ready. Use ready first.", failed=True
                )
            case "call_tool":
                written = given.get("arguments") or {}
                arguments = json.loads(written) if isinstance(written, str) else written
                return await self._call(str(given["name"]), arguments)
        return Answer(f"There is no tool {function!r}.", failed=True)

    async def _view(self) -> list[LoadedTool]:
        tools = await self._patiently(self.crib.tools)
        stamps = {t.tool_id: (t.name, t.digest) for t in tools}
        lacking = [i for i, stamp in stamps.items() if self._known.get(i, (None,))[0] != stamp]
        for loaded in await self._load(lacking) if lacking else ():
            self._known[loaded.tool_id] = stamps[loaded.tool_id], loaded
        now = [self._known[i][1] for i, s in stamps.items() if i in self._known and self._known[i][0] == s]
        self._ids = {t.model_name: t.tool_id for t in now}
        return now

    async def _load(self, tools: Sequence[str]) -> Sequence[LoadedTool]:
        if not tools:
            return ()
        loaded = await self._patiently(lambda: self.crib.load(tools))
        for failure in loaded.failures:
            # Others were revoked since they were listed, or are names that a model made up.
            if failure.code not in ("tool_not_found", "not_permitted"):
                self._leave_out(failure.tool, f"{failure.code}: {failure.detail}")
        self._ids |= {t.model_name: t.tool_id for t in loaded.tools}
        return loaded.tools

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        until, failures = anyio.current_time() + self.patience, 0
        while True:
            try:
                return await ask()
            except errors.RegistryUnavailable as error:
                wait = max(error.retry_after or 0.0, min(exchange.pause(failures), LONGEST_PAUSE))
                if anyio.current_time() + wait > until:
                    raise
            await anyio.sleep(wait)
            failures += 1

    def _leave_out(self, tool: str, reason: str) -> None:
        if (tool, reason) not in self._told:
            self._told.add((tool, reason))
            _log.warning("tool %s is left out: %s", tool, line(reason))


def bounded(schema: Mapping[str, Any]) -> None:
    """For frameworks that write references out for each request to the model.

    Raises:
        ValueError: that would be more than `MOST_VALUES` values.
    """
    if (values := written_out(schema)) > MOST_VALUES:
        raise ValueError(f"its references expand to {values:,} values, more than {MOST_VALUES:,}")


def written_out(schema: Mapping[str, Any]) -> int:
    """How many values the schema has once its references are written out, each recursion once."""
    sizes: dict[str, int] = {}

    def size(node: Any) -> int:
        if isinstance(node, list):
            return 1 + sum(map(size, node))
        if not isinstance(node, Mapping):
            return 1
        total = 1 + sum(size(value) for key, value in node.items() if key not in ("$defs", "definitions"))
        ref = node.get("$ref")
        if isinstance(ref, str) and ref.startswith("#/"):
            if ref not in sizes:
                sizes[ref] = 0
                sizes[ref] = size(_at(schema, ref))
            total += sizes[ref]
        return total

    return size(schema)


def _at(schema: Mapping[str, Any], ref: str) -> Any:
    found: Any = schema
    for part in ref.split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _described(tool: LoadedTool) -> str:
    return f"- {tool.model_name}: {line(tool.description)}\n  {as_json(tool.input_schema)}"
