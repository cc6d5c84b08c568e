"""`toolcrib health`: is a part of Toolcrib alive, or ready? For health checks of containers and for hands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolcrib_cli import options, output
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import examples


@examples("toolcrib health", "toolcrib health http://127.0.0.1:8765 --ready")
def health(
    url: Annotated[
        str | None,
        typer.Argument(
            help="Address of the part. A path in it is kept. Default: the running local mode, or else "
            "the part that listens on loopback.",
            envvar="TOOLCRIB_HEALTH_URL",
            show_default=False,
        ),
    ] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask /readyz (does it serve?) instead of /healthz (is it alive?).")
    ] = False,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", exists=True, dir_okay=False, help="CA bundle (PEM) to trust."),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Trust any certificate.")] = False,
    data: options.Data = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=60, help="Maximum seconds to wait.")
    ] = 3.0,
) -> None:
    """Check whether a part of Toolcrib is healthy. Exit code 1: it is not; the output says why."""
    from toolcrib_cli import probe
    from toolcrib_cli.local.store import read_running

    path = probe.READY if ready else probe.LIVE
    if url is None and (state := read_running(options.data_folder(data))) is not None:
        url = str(state["url"])
    if url is None:
        answer = probe.ask_own(path, timeout)
    else:
        try:
            answer = probe.ask(probe.target(url, path), probe.Trust(ca_file, insecure), timeout)
        except ValueError as error:
            raise CliError(str(error), hint="specify http://HOST:PORT", code=Exit.USAGE) from error
        except OSError as error:
            raise CliError(
                f"--ca-file: {ca_file} contains no usable certificate",
                hint="specify a file with PEM certificates",
                code=Exit.USAGE,
            ) from error
    if not answer.well:
        raise CliError(answer.why, hint=_hint(answer.why))
    output.line(answer.why)


def _hint(why: str) -> str:
    if "certificate is not trusted" in why:
        return "specify its CA with --ca-file, or skip the check with --insecure"
    return (
        "start the local mode with `toolcrib up`, specify an address, or set TOOLCRIB_HEALTH_URL"
        if why.startswith("nothing listens on")
        else ""
    )
