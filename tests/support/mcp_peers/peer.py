"""MCP clients of others as child processes, each in its environment, told what to do and asked what they saw.

with running(PEERS["mcp-2-auto"], url, token, folder) as peer:
    peer.tools(); peer.call("add", {"a": 1}); peer.wait_for_change()
"""

import contextlib
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from mcp_peers import environments
from realparts import processes

CLIENTS = Path(__file__).parent / "clients"
INSPECTOR = "inspector"
SECONDS = 120.0
"""For anything that a client is asked; a start on a busy machine takes ten."""

_WORST = 1 << 16


class PeerFailedError(RuntimeError):
    """A client ended, or said nothing in time; the message ends with what it wrote on standard error."""


class Refused(Exception):
    """A client raised an error instead of an answer; this is its text."""


class Result(NamedTuple):
    """What a client made of a tool's answer."""

    text: str
    failed: bool


@dataclass(frozen=True)
class Kind:
    """A client: its script, the environment of it (`node` is one), a mode that it knows, and what it negotiates.

    `hears` is False for one that runs once for each question and so hears of no change.
    """

    name: str
    environment: str
    script: str
    mode: str = ""
    version: str | None = None
    hears: bool = True


_KINDS = (
    Kind("mcp-2-auto", "current", "python_sdk_2.py", "auto", "2026-07-28"),
    Kind("mcp-2-legacy", "current", "python_sdk_2.py", "legacy", "2025-11-25"),
    Kind("mcp-2-pinned", "current", "python_sdk_2.py", "2026-07-28", "2026-07-28"),
    Kind("mcp-1", "earlier", "python_sdk_1.py", "", "2025-11-25"),
    Kind("fastmcp-auto", "current", "fastmcp_client.py", "auto", "2026-07-28"),
    Kind("fastmcp-legacy", "current", "fastmcp_client.py", "legacy", "2025-11-25"),
    Kind("openai-agents", "earlier", "openai_agents_client.py", "", "2025-11-25"),
    Kind("langchain", "earlier", "langchain_client.py"),
    Kind("typescript-1", "node", "typescript_sdk_1.mjs", "", "2025-11-25"),
    Kind("typescript-2-auto", "node", "typescript_client_2.mjs", "auto", "2026-07-28"),
    Kind("typescript-2-legacy", "node", "typescript_client_2.mjs", "legacy", "2025-11-25"),
    Kind("typescript-2-pinned", "node", "typescript_client_2.mjs", "2026-07-28", "2026-07-28"),
    Kind("inspector-legacy", "node", INSPECTOR, "legacy", hears=False),
    Kind("inspector-modern", "node", INSPECTOR, "modern", hears=False),
)
PEERS: Mapping[str, Kind] = {kind.name: kind for kind in _KINDS}


class Peer(Protocol):
    """A client at one URL. What it is asked raises Refused where the client raises an error."""

    version: str | None
    """The negotiated version, where the client tells it."""

    def tools(self) -> list[str]:
        """The names of the tools that it lists."""
        ...

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        """Call a tool."""
        ...

    def wait_for_change(self) -> None:
        """Return once it has been told of a change of the list, since it was last asked. Raises PeerFailedError."""
        ...


@contextlib.contextmanager
def running(kind: Kind, url: str, token: str, folder: Path) -> Iterator[Peer]:
    """The client, connected; ended with the block. Its files are in `folder`."""
    if kind.script == INSPECTOR:
        yield Inspector(kind, url, token, folder)
        return
    with (folder / f"{kind.name}.log").open("w+b") as log:
        settings = {"PEER_URL": url, "PEER_TOKEN": token, "PEER_MODE": kind.mode, "HOME": str(folder)}
        child = processes.spawn(
            _command(kind, folder),
            cwd=folder,
            env=processes.clean_environment(settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        conversation = Conversation(child, Path(log.name))
        try:
            conversation.start()
            yield conversation
            conversation.finish()
        finally:
            processes.end(child)
            conversation.close()


def _command(kind: Kind, folder: Path) -> list[str]:
    if kind.environment != "node":
        return [str(environments.python(kind.environment)), str(CLIENTS / kind.script)]
    # Node looks for packages beside the script alone.
    for name in ("commands.mjs", kind.script):
        shutil.copy(CLIENTS / name, folder)
    modules = folder / "node_modules"
    if not modules.exists():
        modules.symlink_to(environments.node_modules())
    return [str(environments.node()), str(folder / kind.script)]


class Conversation:
    """A client that obeys commands, a line of JSON each way."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child, self._log = child, log
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.version: str | None = None

    def start(self) -> None:
        """Wait until it is connected."""
        self.version = self._answer("connect")["version"]

    def finish(self) -> None:
        """Let it disconnect and end. Raises PeerFailedError if that fails."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            status = self._child.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise PeerFailedError(
                f"the client did not disconnect within {SECONDS:g} s:\n{self._said()}"
            ) from None
        if status:
            raise PeerFailedError(f"the client ended with {status}:\n{self._said()}")

    def close(self) -> None:
        """Close what connects us to it, once it has ended."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        self._reader.join(SECONDS)
        self._child.stdout.close()

    def tools(self) -> list[str]:
        """The names of the tools that it lists."""
        return list(self._ask({"do": "list"})["tools"])

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        """Call a tool."""
        answer = self._ask({"do": "call", "tool": tool, "arguments": dict(arguments)})
        return Result(answer["text"], answer["failed"])

    def wait_for_change(self) -> None:
        """Return once it has been told of a change."""
        self._ask({"do": "changed"})

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(command).encode() + b"\n")
            self._child.stdin.flush()
        except OSError as error:
            raise PeerFailedError(f"the client is gone:\n{self._said()}") from error
        return self._answer(command["do"])

    def _answer(self, asked: str) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=SECONDS)
        except queue.Empty:
            raise PeerFailedError(f"no answer to {asked} within {SECONDS:g} s:\n{self._said()}") from None
        if not line:
            raise PeerFailedError(f"the client ended when asked to {asked}:\n{self._said()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-_WORST:]


class Inspector:
    """The inspector's command line: a process for each question, so it hears of no change."""

    version: str | None = None

    def __init__(self, kind: Kind, url: str, token: str, folder: Path) -> None:
        program = (
            environments.node_modules() / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        )
        self._command = [str(environments.node()), str(program), "--cli", url, "--transport", "http"]
        self._command += ["--header", f"Authorization: Bearer {token}", "--protocol-era", kind.mode]
        self._command += ["--stored-auth-only", "--quiet", "--format", "json"]
        self._folder = folder

    def tools(self) -> list[str]:
        """The names of the tools that it lists."""
        return [tool["name"] for tool in self._ask("tools/list")["tools"]]

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        """Call a tool."""
        words = ["--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
        result = self._ask("tools/call", *words)
        text = [block["text"] for block in result["content"] if block["type"] == "text"]
        return Result("\n".join(text), bool(result.get("isError")))

    def wait_for_change(self) -> None:
        """It hears of none."""
        raise PeerFailedError("the inspector's command line hears of no changes")

    def _ask(self, method: str, *words: str) -> Any:
        done = subprocess.run(
            [*self._command, "--method", method, *words],
            cwd=self._folder,
            env=processes.clean_environment({"HOME": str(self._folder)}),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        try:
            answer = json.loads(done.stdout)
        except json.JSONDecodeError:
            raise Refused(done.stderr[-_WORST:]) from None
        return answer.get("result", answer)
