"""Options that several commands share, and where their defaults come from."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import platformdirs
import typer

from toolcrib.lint.hidden_text import Hidden
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.bridge.identity import Tokens
    from toolcrib_cli.client import RegistryClient
    from toolcrib_cli.local.listener import LocalRegistry

DEFAULT_PORT = 8765
_TOKEN = re.compile(r"[!-~]+")
"""More than RFC 6750 §2.1 lets stand in an Authorization header; the registry says what is wrong with the rest."""


def matching(names: Mapping[str, str], incomplete: str) -> list[str]:
    """What completes a text to one of several objects: a name that is unique, else the id.

    Args:
        names: by ids (`namespace/object`).
        incomplete: what was typed so far.
    """
    used = Counter(names.values())
    short = (name if used[name] == 1 else key for key, name in names.items())
    found = {text for text in short if text.startswith(incomplete)}
    return sorted(found or {key for key in names if key.startswith(incomplete)})


def agents(ctx: typer.Context, incomplete: str) -> list[str]:
    """The running local mode's service accounts, for a shell's completion."""
    from toolcrib_cli.local.store import read_running

    state = read_running(data_folder(ctx.params.get("data"))) or {}
    return matching({a: a.partition("/")[2] for a in state.get("accounts", ())}, incomplete)


Output = Annotated[Format, typer.Option("-o", "--output", help="Output format.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="TOOLCRIB_URL",
        help="Address of the registry. Default: the local mode that uses --data.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        envvar="TOOLCRIB_DATA",
        help="Data folder of the local mode.",
        show_default="the user's data folder",
    ),
]
As = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Act as this service account of the local mode: namespace/name, or a name that is unique.",
        autocompletion=agents,
    ),
]
Backends = Annotated[
    list[str] | None,
    typer.Option("--backend", help="Address of a Service: namespace/service=host:port. Repeatable."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="TOOLCRIB_TOKEN_FILE",
        help="File with a bearer token. Or set TOOLCRIB_TOKEN to the token itself.",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        envvar="TOOLCRIB_CA_FILE",
        exists=True,
        dir_okay=False,
        help="CA bundle (PEM) for the registry's certificate, instead of the system's.",
    ),
]
Direct = Annotated[
    bool,
    typer.Option(
        "--direct", help="Offer the agent's tools themselves, instead of tools that search and call them."
    ),
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig",
        envvar="KUBECONFIG",
        help="Kubeconfig to read the cluster with.",
        show_default="~/.kube/config",
    ),
]
Context = Annotated[
    str | None, typer.Option("--context", help="Context of the kubeconfig. Default: the current one.")
]
TrustedLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-namespace-label",
        help="Namespace label that the operator trusts. Repeatable.",
        show_default="kubernetes.io/metadata.name",
    ),
]
DefaultNamespace = Annotated[
    str, typer.Option("-n", "--namespace", help="Namespace of manifests without one.")
]
HiddenText = Annotated[
    Hidden,
    typer.Option(
        "--hidden-text",
        envvar="TOOLCRIB_HIDDEN_TEXT",
        help="What to do with a Tool whose texts contain control, bidirectional, tag or zero-width characters.",
    ),
]


def data_folder(given: Path | None) -> Path:
    """The data folder in effect: the option, else the user's data folder."""
    return given if given is not None else platformdirs.user_data_path("toolcrib", appauthor=False)


def bearer(given_as: str | None, token_file: Path | None, data: Path | None) -> str:
    """The bearer token to use: minted for `--as`, read from a file, or TOOLCRIB_TOKEN.

    Raises:
        CliError: none of them was given, or one cannot be used.
    """
    if given_as is not None:
        from toolcrib_cli.local import accounts

        folder = data_folder(data)
        return accounts.mint(folder, "/".join(accounts.find_known(folder, given_as)))
    if token_file is not None:
        try:
            held = token_file.read_bytes()
        except OSError as error:
            raise CliError(
                f"cannot read the token file {token_file}: {error.strerror}",
                hint="check the path given to --token-file or TOOLCRIB_TOKEN_FILE",
                code=Exit.USAGE,
            ) from error
        return _token(held.decode("ascii", errors="replace"), f"the token file {token_file}")
    token = os.environ.get("TOOLCRIB_TOKEN")
    if not token:
        raise CliError(
            "no identity specified",
            hint="specify --as NAME (local mode) or --token-file FILE, or set TOOLCRIB_TOKEN",
            code=Exit.USAGE,
        )
    return _token(token, "TOOLCRIB_TOKEN")


def tokens(given_as: str | None, token_file: Path | None, data: Path | None) -> Tokens:
    """The source of the tokens that `bearer` would give, for a program that outlives one of them."""
    from toolcrib_cli.bridge.identity import Minted, Read

    if given_as is None:
        return Read(lambda: bearer(None, token_file, data))
    name, folder = given_as, data_folder(data)

    def mint(ttl: float) -> str:
        from toolcrib_cli.local import accounts

        return accounts.mint(folder, name, ttl=ttl)

    return Minted(mint)


def _token(held: str, where: str) -> str:
    token = held.strip()
    if not token:
        raise CliError(
            f"{where} is empty", hint="get a token; in the local mode: `toolcrib token NAME`", code=Exit.USAGE
        )
    if not _TOKEN.fullmatch(token):
        raise CliError(
            f"{where} does not hold a token",
            hint="a token is one line of printable ASCII without spaces",
            code=Exit.USAGE,
        )
    return token


def local_registry(minted: bool, url: str | None, data: Path | None) -> LocalRegistry | None:
    """The local mode's registry, if the token is for it: a minted one, or no other address is specified."""
    from toolcrib_cli.local.listener import LocalRegistry

    return LocalRegistry(data_folder(data), url) if minted or not url else None


def registry_client(
    url: str | None,
    as_: str | None,
    token_file: Path | None,
    data: Path | None,
    ca_file: Path | None = None,
    timeout: float = 30.0,
) -> RegistryClient:
    """A client of the registry at the address of the option, else of the running local mode.

    Raises:
        CliError: no local mode runs, or the minted token is for another address; or there is no token.
    """
    from toolcrib_cli.client import RegistryClient

    token = bearer(as_, token_file, data)
    local = local_registry(as_ is not None, url, data)
    where = local.url() if local is not None else str(url).rstrip("/")
    return RegistryClient(
        where, token, ca_file=ca_file, timeout=timeout, greet=None if local is None else local.greet
    )


def mcp_endpoint(url: str, direct: bool) -> str:
    """The address of a registry's MCP endpoint; `url` may name it already."""
    base = url.rstrip("/")
    if base.endswith("/mcp/direct"):
        return base
    if not base.endswith("/mcp"):
        base += "/mcp"
    return f"{base}/direct" if direct else base


def own_command() -> list[str]:
    """How another program starts this one, from any folder and with any search path."""
    # links stay as they are: Python finds its environment by the path that it was started with
    for folder in (Path(sys.argv[0]).absolute().parent, Path(sys.executable).absolute().parent):
        if (script := folder / "toolcrib").is_file() and os.access(script, os.X_OK):
            return [str(script)]
    return [str(Path(sys.executable).absolute()), "-m", "toolcrib_cli"]
