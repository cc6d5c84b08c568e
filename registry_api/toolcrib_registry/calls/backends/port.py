"""The port of backends: what executes a tool that its caller may use, and what a tool answers. It knows no protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls.arguments import CheckedArguments


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """What any block may say of itself.

    Attributes:
        annotations: for whom it is, and how much it matters.
        meta: what the backend says of it besides.
    """

    annotations: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Text(_Block):
    """A block of text."""

    text: str


@dataclass(frozen=True, slots=True)
class Binary(_Block):
    """A block of bytes: an image, a sound, a file. `media_type` says which, without parameters."""

    data: bytes = field(repr=False)
    media_type: str


@dataclass(frozen=True, slots=True)
class ResourceLink(_Block):
    """Where more can be read, `size` bytes: never fetched by the registry."""

    uri: str
    name: str
    media_type: str | None = None
    title: str | None = None
    description: str | None = None
    size: int | None = None
    icons: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Embedded(_Block):
    """A resource that came with the answer: text, or bytes. `content_meta` is what the backend says of the resource."""

    uri: str
    content: str | bytes = field(repr=False)
    media_type: str | None = None
    content_meta: Mapping[str, Any] | None = None


Block = Text | Binary | ResourceLink | Embedded


@dataclass(frozen=True, slots=True)
class InputRequired:
    """What a tool needs to know before it can answer.

    Attributes:
        requests: by a name that the tool chose, each `{method, params}` for the caller's client.
        state: to be given back with the responses; None: there is none.
    """

    requests: Mapping[str, Mapping[str, Any]]
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call has come, of how much (None: unknown)."""

    progress: float
    total: float | None = None
    message: str | None = None


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of what a backend logs, the least first (RFC 5424 §6.2.1, as MCP names them)."""


@dataclass(frozen=True, slots=True)
class Logged:
    """What a backend logs during a call: `data` is JSON, encoded."""

    level: str
    data: bytes = field(repr=False)
    logger: str | None = None


Told = Progress | Logged


@dataclass(frozen=True, slots=True)
class Logs:
    """Told what a backend logs, from `level` on."""

    level: str
    tell: Callable[[Logged], Awaitable[None]]

    def take(self, level: object) -> bool:
        """Whether what is logged at a level is told."""
        return level in LEVELS and LEVELS.index(str(level)) >= LEVELS.index(self.level)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What of the caller's client goes on to a backend whose protocol can carry it.

    Attributes:
        capabilities: what the client says it can do.
        meta: what it says of its request, the protocol's own left out (`traceparent`).
        responses: to what the tool asked for (`InputRequired`), by the same names.
        state: of `InputRequired`, given back.
        progress: told how far the call has come; None: the client did not ask.
        logs: told what the backend logs; None: the client did not ask.
        token: the caller's, to be exchanged at the issuer that made it, for a backend that takes tokens of callers. It goes to no
            backend. Empty: there is none, or the backend takes none.
    """

    capabilities: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    responses: Mapping[str, Any] | None = None
    state: str | None = None
    progress: Callable[[Progress], Awaitable[None]] | None = None
    logs: Logs | None = None
    token: str = field(default="", repr=False)

    @property
    def continues(self) -> bool:
        """Whether it answers what the tool asked for: no other tool can go on with that."""
        return self.responses is not None or self.state is not None


NO_EXCHANGE = Exchange()
"""Of a caller whose protocol has nothing to carry."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool answered.

    Attributes:
        raw: the answer as it came; JSON where `is_json`, else what the one block says, in its own encoding. Empty: nothing, or
            what several blocks say.
        media_type: of `raw`, without parameters, as the backend named it; empty where it named none.
        is_json: `raw` is JSON, or empty, which is null.
        blocks: the content; None: `raw` is all of it.
        is_error: the tool ran and says that it failed.
        input_required: the tool has not answered yet: it asks for something first.
        meta: what the backend says of its answer, its protocol's own left out.
        elapsed: seconds the call took, retries included.
    """

    raw: bytes = field(repr=False)
    media_type: str
    is_json: bool
    blocks: tuple[Block, ...] | None = None
    is_error: bool = False
    elapsed: float = 0.0
    input_required: InputRequired | None = None
    meta: Mapping[str, Any] | None = None

    @property
    def content(self) -> tuple[Block, ...]:
        """The answer as blocks; JSON is one of text."""
        if self.blocks is not None:
            return self.blocks
        return (Text(self.raw.decode()),) if self.raw else ()

    @property
    def structured(self) -> Any:
        """The JSON value, None where there is none. Parsed each time: kept, it takes 30 times the memory of `raw`."""
        return orjson.loads(self.raw) if self.is_json and self.raw else None


class ToolBackend(Protocol):
    """Executes tools. It decides nothing: who may call was decided before.

    One contract suite: `tests/contract/test_tool_backends.py`.
    """

    async def call(
        self,
        tool: PublishedTool,
        arguments: CheckedArguments,
        request_id: str,
        caller: Identity,
        exchange: Exchange = NO_EXCHANGE,
    ) -> ToolAnswer:
        """Send `arguments` to the tool's backend, for `caller`; what it answers, within `calls.bounds`.

        An answer that repeats what was sent to authenticate is not returned.

        Raises:
            CallError: the call did not succeed, see `calls.errors`.
        """
        ...
