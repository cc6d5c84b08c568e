"""`toolcrib client config`: what an MCP client has to be told to reach a registry."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from toolcrib_cli import options, output
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import epilog, examples
from toolcrib_cli.mcp_clients.entries import (
    Address,
    Client,
    Command,
    Server,
    block,
    entry,
    remark,
    usual_file,
)

app = typer.Typer(help="Connect MCP clients.", no_args_is_help=True)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@app.callback()
def _group() -> None:
    """Connect MCP clients."""


@examples(
    "toolcrib client config claude --as safecracker",
    "toolcrib client config vscode --url https://toolcrib.example.com",
)
def config(
    client: Annotated[Client, typer.Argument(help="The client.", show_default=False)],
    as_: options.As = None,
    direct: options.Direct = False,
    url: options.Url = None,
    data: options.Data = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with a bearer token, which `toolcrib mcp` reads."),
    ] = None,
    token_env: Annotated[
        str | None,
        typer.Option("--token-env", help="Environment variable with the token, instead of OAuth."),
    ] = None,
    ca_file: options.CaFile = None,
    name: Annotated[str, typer.Option("--name", help="Name of the server in the client.")] = "toolcrib",
    write: Annotated[
        bool,
        typer.Option("--write", help="Write it into the client's file. A backup is kept beside the file."),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="File to write instead of the client's default one.", dir_okay=False),
    ] = None,
) -> None:
    """Print the configuration that connects an MCP client, ready to paste. It never contains a token."""
    if not _NAME.fullmatch(name):
        hint = "use letters, digits, - and _, at most 48"
        raise CliError(f"--name: invalid name: {name!r}", hint=hint, code=Exit.USAGE)
    server = _server(as_, direct, url, data, token_file, token_env, ca_file)
    made = entry(client, server)
    if file is not None and not write:
        raise CliError(
            "--file needs --write", hint="add --write, or redirect standard output", code=Exit.USAGE
        )
    target = file or usual_file(client, server)
    if not write:
        sys.stdout.write(block(client, name, server))
        output.line(
            f"Goes into {target}; --write puts it there. {remark(client, server)}".rstrip(), stderr=True
        )
        return
    from toolcrib_cli.mcp_clients.edits import write as put

    done = put(target, client, name, made)
    if not done.changed:
        output.line(f"{done.file} has it already.")
        return
    output.line(f"Written to {done.file}." + (f" Before: {done.backup}" if done.backup else ""))
    if more := remark(client, server):
        output.line(more, stderr=True)


def _server(
    as_: str | None,
    direct: bool,
    url: str | None,
    data: Path | None,
    token_file: Path | None,
    token_env: str | None,
    ca_file: Path | None,
) -> Server:
    if url is not None:
        from toolcrib_cli.client import check_address

        check_address(url)
    if as_ is None and token_file is None and url is not None:
        if token_env is not None and not _VARIABLE.fullmatch(token_env):
            raise CliError(
                f"--token-env: invalid variable name: {token_env!r}",
                hint="use letters, digits and _, and begin with a letter",
                code=Exit.USAGE,
            )
        if ca_file is not None:
            hint = "add --token-file, and the client starts `toolcrib mcp`, which trusts the CA"
            raise CliError("a client's configuration cannot specify a CA", hint=hint, code=Exit.USAGE)
        return Address(options.mcp_endpoint(url, direct), token_env)
    if token_env is not None:
        hint = "specify --url, without --as and --token-file"
        raise CliError("--token-env needs a client that connects by HTTP", hint=hint, code=Exit.USAGE)
    if as_ is not None and token_file is not None:
        raise CliError("specify either --as or --token-file", code=Exit.USAGE)
    arguments = [*options.own_command(), "mcp"]
    if as_ is not None:
        from toolcrib_cli.local import accounts

        arguments += ["--as", "/".join(accounts.find(options.data_folder(data), as_))]
    elif token_file is not None:
        arguments += ["--token-file", str(token_file.absolute())]
    else:
        hint = "specify --as NAME for the local mode, or --url https://HOST for a registry elsewhere"
        raise CliError("no identity and no registry specified", hint=hint, code=Exit.USAGE)
    if direct:
        arguments.append("--direct")
    if url is not None:
        arguments += ["--url", url]
    # the client's environment is not this shell's
    if as_ is not None and (data is not None or os.environ.get("XDG_DATA_HOME")):
        arguments += ["--data", str(options.data_folder(data).absolute())]
    if ca_file is not None:
        arguments += ["--ca-file", str(ca_file.absolute())]
    return Command(arguments[0], tuple(arguments[1:]))


app.command("config", epilog=epilog(config))(config)
