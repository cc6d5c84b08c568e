"""`toolcrib health`: is a part of Toolcrib alive, or ready? For health checks of containers and for hands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolcrib_cli import options, output
from toolcrib_cli.errors import CliError, Exit


def health(
    url: Annotated[
        str | None,
        typer.Argument(
            help="Its address; one with a path is asked as it is. Without an address: the running local mode, or else "
            "the part that listens here, on loopback.",
            envvar="TOOLCRIB_HEALTH_URL",
            show_default=False,
        ),
    ] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask /readyz (does it serve?), not /healthz (is it alive?).")
    ] = False,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", exists=True, dir_okay=False, help="Trust certificates of this CA (PEM)."),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Trust any certificate.")] = False,
    data: options.Data = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, max=60, help="Seconds to wait.")] = 3.0,
) -> None:
    """Ask a part of Toolcrib whether it is well: exit code 0 if so, 1 if not, and a line that says why.

    For example: `toolcrib health`, or `toolcrib health https://localhost:8443 --ready --ca-file ca.crt`.
    """
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
            raise CliError(str(error), hint="say http://HOST:PORT", code=Exit.USAGE) from error
        except OSError as error:
            raise CliError(
                f"--ca-file: {ca_file} holds no certificate that can be used", code=Exit.USAGE
            ) from error
    if not answer.well:
        raise CliError(answer.why, hint=_hint(answer.why))
    output.line(answer.why)


def _hint(why: str) -> str:
    if "certificate is not trusted" in why:
        return "name its CA with --ca-file, or do without with --insecure"
    return (
        "start the local mode with `toolcrib up`, name its address, or set TOOLCRIB_HEALTH_URL"
        if why.startswith("nothing listens on")
        else ""
    )
