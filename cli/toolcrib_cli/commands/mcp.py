"""`toolcrib mcp`: the stdio bridge, for MCP clients that start a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib_cli import options
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import examples

if TYPE_CHECKING:
    from toolcrib_cli.local.listener import LocalRegistry


@examples("""echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | toolcrib mcp --as safecracker""")
def mcp(
    as_: options.As = None,
    direct: options.Direct = False,
    url: options.Url = None,
    data: options.Data = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", min=0, max=600, help="Seconds that a message waits while the registry does not answer."
        ),
    ] = 20.0,
) -> None:
    """Serve MCP on standard input and output, for clients that start a command.

    `toolcrib client config` writes the configuration that makes a client start it.
    """
    from toolcrib_cli.bridge.run import Plan, run
    from toolcrib_cli.client import check_address, trust

    local = options.local_registry(as_ is not None, url, data)

    def endpoint() -> str:
        return options.mcp_endpoint(local.url() if local is not None else str(url), direct)

    if url:
        check_address(url)
    if as_ is None and token_file is None and not os.environ.get("TOOLCRIB_TOKEN"):
        hint = "specify --as NAME (local mode) or --token-file FILE, or set TOOLCRIB_TOKEN"
        raise CliError("no identity specified", hint=hint, code=Exit.USAGE)
    if local is not None:
        _possible(local, as_, data)
    greet = None if local is None else local.greet_in_loop
    run(Plan(endpoint, options.tokens(as_, token_file, data), trust(ca_file), wait, greet))


def _possible(local: LocalRegistry, name: str | None, data: Path | None) -> None:
    """Fail at once where the running local mode has another address or does not know the name: clients show little of what
    comes later.

    Raises:
        CliError: it runs, and one of them will not do.
    """
    from toolcrib_cli.local import accounts
    from toolcrib_cli.local.store import read_running

    folder = options.data_folder(data)
    if read_running(folder) is not None:
        if name is not None:
            accounts.find_known(folder, name)
        local.url()
