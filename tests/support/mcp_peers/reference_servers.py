"""MCP's reference servers as they come from npm and PyPI, each a process; those that speak stdio alone behind a bridge.

    with running(folder) as urls: ...     # by name, once all of them listen

The bridge is PyPI's `mcp-proxy`, started as `examples/servers/bridge.yaml` starts it in a cluster.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mcp_peers import environments
from realparts import processes

BRIDGE = Path(__file__).parents[3] / "examples" / "servers" / "bridge.yaml"
SECONDS = 60.0


@dataclass(frozen=True)
class Reference:
    """A server: the package that it comes in, its registry, and its arguments; `{home}` is its folder."""

    package: str
    source: str
    arguments: tuple[str, ...] = ()
    stdio: bool = True


SERVERS: Mapping[str, Reference] = {
    "everything": Reference(
        "@modelcontextprotocol/server-everything", "npm", ("streamableHttp",), stdio=False
    ),
    "filesystem": Reference("@modelcontextprotocol/server-filesystem", "npm", ("{home}",)),
    "memory": Reference("@modelcontextprotocol/server-memory", "npm"),
    "thinking": Reference("@modelcontextprotocol/server-sequential-thinking", "npm"),
    "time": Reference("mcp-server-time", "PyPI", ("--local-timezone=UTC",)),
    "git": Reference("mcp-server-git", "PyPI", ("--repository", "{home}")),
    "fetch": Reference("mcp-server-fetch", "PyPI", ("--ignore-robots-txt", "--allow-private-ips")),
}


@contextlib.contextmanager
def running(home: Path, *names: str) -> Iterator[dict[str, str]]:
    """Where each server is, or each of `names`; each has a folder of its name in `home`, made if it is not there.

    Raises:
        PeersMissingError: their environments are not on this machine.
    """
    wanted = names or tuple(SERVERS)
    ports = dict(zip(wanted, processes.free_ports(len(wanted)), strict=True))
    with contextlib.ExitStack() as stack:
        children = {
            name: stack.enter_context(_child(home / name, name, port)) for name, port in ports.items()
        }
        for name, port in ports.items():
            processes.wait_until(lambda n=name, p=port: _there(children[n], p, home / n), SECONDS)  # type: ignore[misc]
        yield {name: f"http://127.0.0.1:{port}/mcp" for name, port in ports.items()}


def bridged(command: list[str], port: int) -> list[str]:
    """The command line of a bridge before a stdio server, on loopback."""
    words = bridge_words()
    words[words.index("0.0.0.0")], words[words.index("8080")] = "127.0.0.1", str(port)
    bridge = environments.python("earlier").with_name(words[0])
    return [str(bridge), *words[1 : words.index("--") + 1], *command]


def bridge_words() -> list[str]:
    """The command line of the example: bridge, `--`, server."""
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(BRIDGE.read_text()))
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [str(word) for word in container["command"]]


def command_of(name: str, home: Path, *, stdio: bool = False) -> list[str]:
    """The command line of a server; `stdio`: also where it can speak HTTP."""
    server = SERVERS[name]
    arguments = [each.format(home=home) for each in server.arguments if server.stdio or not stdio]
    if server.source == "PyPI":
        return [str(environments.python("current").with_name(server.package)), *arguments]
    folder = environments.node_modules() / server.package
    return [str(environments.node()), str(folder / "dist" / "index.js"), *arguments]


@contextlib.contextmanager
def _child(home: Path, name: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    home.mkdir(parents=True, exist_ok=True)
    command = command_of(name, home)
    if SERVERS[name].stdio:
        command = bridged(command, port)
    with (home.parent / f"{name}.log").open("wb") as log:
        log.write(f"{shlex.join(command)}\n".encode())
        log.flush()
        child = processes.spawn(
            command,
            cwd=home,
            env=processes.clean_environment(
                {"HOME": str(home), "PORT": str(port), "MEMORY_FILE_PATH": str(home / "memory.jsonl")}
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield child
        finally:
            processes.end(child)


def _there(child: subprocess.Popen[bytes], port: int, home: Path) -> bool:
    if child.poll() is not None:
        raise processes.NotReadyError(home.with_suffix(".log").read_text(errors="replace"))
    return processes.listening(port)
