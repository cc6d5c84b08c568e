"""What the agents of frameworks meet: a real registry behind a door that can be shut, and tools on one HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from relay import Relay
from stub_server import Answer, Request, handling
from toolcrib.wire.publish import PublishedBinding, PublishedTool

MANY = 2651
"""As many as examples/catalog has."""
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
KEYWORDS = {
    "type": "object",
    "properties": {"from": {"type": "string"}, "class": {"type": "string"}, "self": {"type": "string"}},
    "required": ["from"],
}
_LEVELS = 18
# Each level names the one below twice: a hundred lines that are 2^18 schemas for whoever writes references out.
FANNED = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/l0"}},
    "$defs": {
        **{
            f"l{level}": {
                "type": "object",
                "properties": {
                    "x": {"$ref": f"#/$defs/l{level + 1}"},
                    "y": {"$ref": f"#/$defs/l{level + 1}"},
                },
            }
            for level in range(_LEVELS)
        },
        f"l{_LEVELS}": {"type": "string"},
    },
}
VIEW = {
    "add": "add",
    "subtract": "subtract",
    "wait": "wait",
    "import": "import",
    "reports.monthly": "team__reports-monthly_a0227e",
    "fanned": "fanned",
}
"""What the agent may use: listed name, and what a model calls it."""
SUBTRACT = binding("bot", ("subtract:use",), name="subtract")


class Door:
    """A port in front of another one that can be shut: connections to it are refused then, and all open ones end."""

    def __init__(self, target: int) -> None:
        self.relay = Relay(target)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.open()

    def open(self) -> None:
        """Let connections in, at the port of before."""

        async def start() -> None:
            self._server = await asyncio.start_server(self.relay.accept, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

        self._run(start())

    def shut(self) -> None:
        """Let nobody in, and end what is open."""

        async def stop() -> None:
            assert self._server is not None
            self._server.close()
            self.relay.cut()
            for number in self.relay.open:
                await self.relay.closed(number)

        self._run(stop())

    def close(self) -> None:
        """The end."""
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


class World:
    """A registry with the tools of `VIEW` and one that is hidden."""

    def __init__(self, registry: RunningRegistry, door: Door) -> None:
        self.registry, self.door = registry, door
        self.waiting = threading.Event()
        self.calls: list[str] = []

    @property
    def url(self) -> str:
        """Behind the door."""
        return f"http://127.0.0.1:{self.door.port}"

    def begin(self) -> None:
        """Forget what was called before."""
        self.calls.clear()
        self.waiting.clear()

    def token(self) -> str:
        """The agent's."""
        return self.registry.token("team", "bot")

    def revoke(self) -> None:
        """Take `subtract` away."""
        self.registry.publish(remove_bindings=[SUBTRACT.uid])

    def grant(self) -> None:
        """Give it back."""
        self.registry.publish(bindings=[SUBTRACT])


def _tools(port: int) -> list[PublishedTool]:
    schemas = dict.fromkeys(("add", "subtract", "wait", "hidden"), NUMBERS)
    schemas |= {"import": KEYWORDS, "reports.monthly": KEYWORDS, "fanned": FANNED}
    return [
        tool(
            name,
            object_name=name.replace(".", "-"),
            description="Adds two\x07 numbers." if name == "add" else f"The tool {name}.",
            input_schema=schema,
            scopes=(f"{name.replace('.', '-')}:use",),
            backend=backend(port, f"/{name}"),
        )
        for name, schema in schemas.items()
    ]


def _bindings() -> list[PublishedBinding]:
    scopes = [f"{name.replace('.', '-')}:use" for name in VIEW if name != "subtract"]
    return [binding("bot", scopes), SUBTRACT]


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A new one."""
    calls: list[str] = []
    waiting, over = threading.Event(), threading.Event()

    def answer(request: Request) -> None:
        calls.append(request.path)
        given = request.json()
        if request.path == "/wait":
            waiting.set()
            while not (over.is_set() or request.gone(0.1)):
                pass
            request.last()
            return
        sign = -1 if request.path == "/subtract" else 1
        result = given["a"] + sign * given["b"] if "a" in given else given
        request.send(Answer(json.dumps({"result": result}).encode()))

    with handling(answer) as port, running_registry(_tools(port), _bindings()) as registry:
        door = Door(int(registry.url.rsplit(":", 1)[1]))
        try:
            made = World(registry, door)
            made.waiting, made.calls = waiting, calls
            yield made
        finally:
            over.set()
            door.close()


@contextlib.contextmanager
def many() -> Iterator[tuple[RunningRegistry, list[str]]]:
    """A registry where the agent sees `MANY` tools, and their names."""
    with handling(lambda request: request.send(Answer(b'{"result": "done"}'))) as port:
        names = [f"tool-{number}" for number in range(MANY)]
        tools = [
            tool(name, description=f"Does thing number {number}.", input_schema=NUMBERS, scopes=("many:use",), backend=backend(port))
            for number, name in enumerate(names)
        ]  # fmt: skip
        with running_registry(tools, [binding("bot", ("many:use",))]) as registry:
            yield registry, names
