"""Manifests from what people have already: configurations of MCP clients, server.json, allowlists.json, an address."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from toolcrib.text import escape
from toolcrib_cli import options, output
from toolcrib_cli.commands.import_openapi import openapi
from toolcrib_cli.commands.import_options import check
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, epilog, examples

app = typer.Typer(help="Write manifests from other programs' files.", no_args_is_help=True)
_FORMS = "mcpServers or servers (a client's configuration), server.json, or allowlists.json"


@examples(
    Example("toolcrib import mcp examples/imports/mcp.json -n team-a", lines=12),
    "toolcrib import mcp https://mcp.example.com/mcp --name tickets",
)
def mcp(
    source: Annotated[
        str,
        typer.Argument(
            metavar="URL|FILE",
            help="An MCP server's address; or claude_desktop_config.json, mcp.json, .vscode/mcp.json, server.json,"
            " allowlists.json. - is standard input.",
        ),
    ],
    namespace: options.DefaultNamespace = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="Scope that opens all tools, or that a binding grants. Repeatable.",
            show_default="NAME:use for a ToolServer",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the ToolServer, with a URL.")] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Variable in an address of server.json. Repeatable."
        ),
    ] = None,
) -> None:
    """Print manifests for the MCP servers of a file, to review and apply.

    Each server becomes a ToolServer, with a Secret to fill in if it needs a credential. Each agent of allowlists.json becomes
    an AgentScopeBinding. Values of headers and environment variables are never printed.
    """
    from toolcrib_cli.imports import allowlists, manifests, servers

    scopes = tuple(scope or ())
    check(namespace, scopes)
    given = _values(values or [])
    if re.match(r"(?i)[a-z][a-z0-9+.-]*://", source):
        found = [servers.of_url(source, name)]
        _print("server", manifests.of_servers(found, namespace, scopes), sum(bool(s.left_out) for s in found))
        return
    if name is not None:
        raise CliError("--name needs a URL: in a file, each server has its own name", code=Exit.USAGE)
    document = _read(source)
    if allowlists.is_allowlists(document):
        lists = list(allowlists.of_document(document))
        _print(
            "agent", manifests.of_allowlists(lists, namespace, scopes), sum(bool(a.left_out) for a in lists)
        )
        return
    if isinstance(document.get("name"), str) and ("remotes" in document or "packages" in document):
        found = list(servers.of_server_json(document, given))
    else:
        found = list(servers.of_clients(_client_servers(source, document)))
    _print("server", manifests.of_servers(found, namespace, scopes), sum(bool(s.left_out) for s in found))


def _values(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise CliError(
                f"--set {escape(one)} is not NAME=VALUE", hint="for example: --set region=eu", code=Exit.USAGE
            )
        found[name] = value
    return found


def _read(source: str) -> dict[str, Any]:
    from toolcrib_cli.imports import json_files

    try:
        if source == "-":
            raw = sys.stdin.buffer.read(json_files.MAX_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                raw = file.read(json_files.MAX_BYTES + 1)
    except OSError as error:
        raise CliError(
            f"cannot read {source}: {error.strerror}",
            hint=f"give a URL, or a file with {_FORMS}",
            code=Exit.USAGE,
        ) from error
    if len(raw) > json_files.MAX_BYTES:
        raise CliError(
            f"{source} is larger than 1 MiB: not the configuration of a client",
            hint=f"give a file with {_FORMS}",
            code=Exit.USAGE,
        )
    try:
        document = json_files.read(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CliError(
            f"{source} is not UTF-8 (byte {error.start})", hint="save the file as UTF-8", code=Exit.USAGE
        ) from error
    except ValueError as error:
        raise CliError(
            f"{source} is not JSON: {error}", hint=f"give a file with {_FORMS}", code=Exit.USAGE
        ) from error
    if not isinstance(document, dict):
        raise CliError(
            f"{source} does not hold a JSON object", hint=f"give a file with {_FORMS}", code=Exit.USAGE
        )
    return document


def _client_servers(source: str, document: dict[str, Any]) -> dict[str, Any]:
    nested = document.get("mcp")
    for holder in (document, nested if isinstance(nested, dict) else {}):
        for key in ("mcpServers", "servers"):
            if isinstance(found := holder.get(key), dict):
                return found
    raise CliError(f"{source} holds no MCP servers", hint=f"give a file with {_FORMS}", code=Exit.USAGE)


def _print(what: str, documents: list[str], left_out: int) -> None:
    if not documents:
        raise CliError(f"the source names no {what}s", hint=f"give a URL, or a file with {_FORMS}")
    sys.stdout.write("---\n".join(documents))
    sys.stdout.flush()
    if left_out:
        total = f"{left_out} {what}{'s' if left_out > 1 else ''}"
        output.line(f"left out: {total}; comments in the output say why", style="yellow", stderr=True)
    if all(document.startswith("# Left out") for document in documents):
        raise CliError(f"no manifest could be made of the source's {what}s", hint="read the comments above")


app.command("mcp", epilog=epilog(mcp))(mcp)
app.command("openapi", epilog=epilog(openapi))(openapi)
