"""What each client writes about a server: the entry, the object that holds it, and the file."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from toolcrib_cli.errors import CliError, Exit


class Client(StrEnum):
    """Clients whose configuration is known."""

    CLAUDE = "claude"
    CURSOR = "cursor"
    VSCODE = "vscode"
    CODEX = "codex"
    INSPECTOR = "inspector"


@dataclass(frozen=True, slots=True)
class Command:
    """A server that the client starts, and speaks to over standard input and output."""

    command: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """A server over HTTP; without `token_variable` the client gets a token by OAuth."""

    url: str
    token_variable: str | None = None


Server = Command | Address

HOLDER = {
    Client.CLAUDE: "mcpServers",
    Client.CURSOR: "mcpServers",
    Client.VSCODE: "servers",
    Client.CODEX: "mcp_servers",
    Client.INSPECTOR: "mcpServers",
}
"""The object of a client's configuration that holds an entry for each server."""

_HTTP_TYPE = {Client.CLAUDE: "http", Client.VSCODE: "http", Client.INSPECTOR: "streamable-http"}
_VARIABLE = {Client.CLAUDE: "${%s}", Client.CURSOR: "${env:%s}", Client.VSCODE: "${env:%s}"}


def entry(client: Client, server: Server) -> dict[str, Any]:
    """What stands under the server's name.

    Raises:
        CliError: the client's configuration cannot say this.
    """
    if isinstance(server, Command):
        started = {"command": server.command, "args": list(server.arguments)}
        return {"type": "stdio", **started} if client is Client.VSCODE else started
    kind = _HTTP_TYPE.get(client)
    found: dict[str, Any] = {"type": kind, "url": server.url} if kind else {"url": server.url}
    if server.token_variable is None:
        return found
    if client is Client.CODEX:
        return {**found, "bearer_token_env_var": server.token_variable}
    if client not in _VARIABLE:
        raise CliError(
            f"the configuration of {client} cannot reference an environment variable",
            hint="use --token-file: the client then starts `toolcrib mcp`",
            code=Exit.USAGE,
        )
    return {**found, "headers": {"Authorization": f"Bearer {_VARIABLE[client] % server.token_variable}"}}


def block(client: Client, name: str, server: Server) -> str:
    """The entry with all that is around it: what a person pastes into an empty file."""
    if client is Client.CODEX:
        return toml_table(name, entry(client, server))
    return json.dumps({HOLDER[client]: {name: entry(client, server)}}, indent=2, ensure_ascii=False) + "\n"


def toml_table(name: str, values: dict[str, Any]) -> str:
    """Codex's entry as a TOML table. JSON's strings and lists of them are TOML's, but for one character."""
    lines = [f"[{HOLDER[Client.CODEX]}.{name}]"]
    for key, value in values.items():
        lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f"))
    return "\n".join(lines) + "\n"


def usual_file(client: Client, server: Server) -> Path:
    """Where the client reads it: of this user, or of the folder that the command runs in."""
    home = Path.home()
    if client is Client.CLAUDE and isinstance(server, Command):
        mac = home / "Library" / "Application Support"
        settings = (
            mac if sys.platform == "darwin" else Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        )
        return settings / "Claude" / "claude_desktop_config.json"
    files = {
        Client.CLAUDE: Path(".mcp.json"),
        Client.CURSOR: home / ".cursor" / "mcp.json",
        Client.VSCODE: Path(".vscode") / "mcp.json",
        Client.CODEX: Path(os.environ.get("CODEX_HOME") or home / ".codex") / "config.toml",
        Client.INSPECTOR: Path("mcp.json"),
    }
    return files[client]


def remark(client: Client, server: Server) -> str:
    """What a person has to do besides; empty: nothing."""
    if client is Client.CLAUDE and isinstance(server, Command):
        return "Claude Desktop: quit and start it again. In Claude Code the same block goes into .mcp.json of a project, where you approve it once."
    if client is Client.CLAUDE:
        return "For Claude Code. In Claude Desktop add the URL under Settings > Connectors."
    if client is Client.INSPECTOR:
        return "Start it with: npx @modelcontextprotocol/inspector --config mcp.json"
    if client is Client.CURSOR and isinstance(server, Address) and server.token_variable:
        return "Cursor ignores headers where the registry offers OAuth: use --token-file there."
    return ""
