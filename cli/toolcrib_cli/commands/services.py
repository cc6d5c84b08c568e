"""Running the parts: the local mode, and each service with its own options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.lint.hidden_text import Hidden
from toolcrib_cli import options
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples

if TYPE_CHECKING:
    from toolcrib_cli.example_tools import CallAssertions

ALL_STDIO = "*"
"""The value of `--allow-stdio` where none is given."""
_EXAMPLES = ["heist/*", "catalog/*"]


@examples(
    Example("toolcrib up --demo", until="\nup in ", also="--port 0 --no-tour --data other"),
    Example(
        "toolcrib up --manifests tools/ --backend team-a/notes=127.0.0.1:9000 --allow-host api.example.com",
        not_run="names a folder, a service and a host of yours",
    ),
)
def up(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on loopback. 0 takes a free one.")
    ] = options.DEFAULT_PORT,
    data: options.Data = None,
    manifests: Annotated[
        list[Path] | None,
        typer.Option("--manifests", exists=True, help="Folder or file of manifests. Repeatable."),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Serve the packaged example: three agents, four tools. It is copied to demo/ in the data folder.",
        ),
    ] = False,
    backend: options.Backends = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="HOST[:PORT]",
            help="Host that tools may call besides loopback: api.example.com, api.example.com:8443 or "
            "*.example.com. Repeatable. To change it while running, edit hosts.yaml in the data folder.",
        ),
    ] = None,
    allow_stdio: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-stdio",
            metavar="[=NAMESPACE/SERVER]",
            help="Start the commands of ToolServers: of this one, or of all. Repeatable. Anyone who may edit the manifests "
            "then runs programs as you.",
        ),
    ] = None,
    tour: Annotated[
        bool, typer.Option("--tour/--no-tour", help="Show what each agent discovers, and make one call.")
    ] = True,
    embedder: Annotated[
        str,
        typer.Option(
            "--embedder",
            help="packaged (hybrid search), none (lexical search only), or a folder with an ONNX sentence model.",
        ),
    ] = "packaged",
    hidden_text: options.HiddenText = Hidden.REFUSE,
    trusted_namespace_label: options.TrustedLabels = None,
    mcp_split_calls: Annotated[
        bool,
        typer.Option(
            "--mcp-split-calls",
            help="Offer call_read_tool and call_write_tool on /mcp instead of call_tool.",
        ),
    ] = False,
    mcp_compatible_names: Annotated[
        bool,
        typer.Option(
            "--mcp-compatible-names",
            help="Offer intelligent_tool_finder, search_registry and invoke_mcp_tool on /mcp too.",
        ),
    ] = False,
    quota_tools: Annotated[
        int,
        typer.Option(
            "--quota-tools",
            min=0,
            help="Most tools in a namespace; the oldest are accepted. 0: no limit.",
        ),
    ] = 5_000,
    quota_bytes: Annotated[
        str,
        typer.Option(
            "--quota-bytes",
            metavar="SIZE",
            help="Most JSON bytes of all tools in a namespace. 0: no limit.",
        ),
    ] = "64Mi",
) -> None:
    """Run Toolcrib on this machine, without a cluster or a database server.

    It watches the manifests. Ctrl-C stops it.
    """
    from toolcrib.telemetry.logs import configure
    from toolcrib_cli.local.settings import Options
    from toolcrib_cli.local.up import run

    try:
        # what it says to people goes to standard output; the log is for what goes wrong
        configure({"TOOLCRIB_LOG_FORMAT": "text", "TOOLCRIB_LOG_LEVEL": "warning", **os.environ})
    except ValueError as error:
        raise CliError(str(error), code=Exit.USAGE) from error
    run(
        Options(
            port=port,
            data=options.data_folder(data),
            manifests=tuple(manifests or ()),
            backends=backends_of(backend or []),
            allow_hosts=allowed(allow_host or []),
            allow_stdio=_servers(allow_stdio or []),
            demo=demo,
            tour=tour,
            embedder=embedder,
            default_data=data is None,
            hidden_text=hidden_text,
            trusted_labels=tuple(trusted_namespace_label or ()),
            split_calls=mcp_split_calls,
            compatible_names=mcp_compatible_names,
            quota=(quota_tools, _size("--quota-bytes", quota_bytes)),
        )
    )


def _servers(given: list[str]) -> tuple[str, ...]:
    for text in given:
        if text != ALL_STDIO and (text.count("/") != 1 or not all(text.split("/"))):
            raise CliError(
                f"--allow-stdio: {text!r} is not namespace/server",
                hint="for example: --allow-stdio=team-a/time; without a value, all commands are started",
                code=Exit.USAGE,
            )
    return tuple(dict.fromkeys(given))


def _size(option: str, text: str) -> int:
    from toolcrib.resources import quantities

    try:
        return quantities.in_bytes(text)
    except ValueError as error:
        raise CliError(f"{option}: {error}", code=Exit.USAGE) from error


def allowed(given: list[str]) -> tuple[str, ...]:
    """Values of `--allow-host`. Raises CliError."""
    from toolcrib_cli.local.hosts import Hosts, problem

    for text in given:
        if why := problem(Hosts(allow=(text,))):
            raise CliError(
                f"--allow-host: {why.partition(': ')[2]}: {text!r}",
                hint="for example: --allow-host api.example.com, or api.example.com:8443",
                code=Exit.USAGE,
            )
    return tuple(given)


def backends_of(given: list[str]) -> dict[str, str]:
    """Values of `--backend`. Raises CliError."""
    found: dict[str, str] = {}
    for text in given:
        service, equals, address = text.partition("=")
        host, colon, port = address.rpartition(":")
        if not equals or service.count("/") != 1 or not colon or not host or not port.isdigit():
            raise CliError(
                f"--backend: {text!r} is not namespace/service=host:port",
                hint="for example: --backend team-a/notes=127.0.0.1:9000",
                code=Exit.USAGE,
            )
        found[service] = address
    return found


@examples(
    Example(
        "toolcrib example-tools --issuer https://toolcrib.example.com",
        until="example tools at",
        also="--port 0",
    ),
)
def example_tools(
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port. 0 takes a free one.")] = 8080,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder for the sample files and database. Default: a temporary one."),
    ] = None,
    issuer: Annotated[
        str | None,
        typer.Option("--issuer", help="Public URL of the registry. Calls without its assertion are refused."),
    ] = None,
    jwks_url: Annotated[
        str | None,
        typer.Option("--jwks-url", help="Address of its keys. Default: /.well-known/jwks.json at --issuer."),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", help="CA bundle (PEM) for that address, instead of the system's."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            help="Id of a tool to execute; * is a wildcard. Repeatable. Default: those of examples/.",
        ),
    ] = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Accept calls from anyone, without an assertion.")
    ] = False,
) -> None:
    """Run the services behind the example tools: calculator, file reader, database, simulation, echo.

    They accept only calls that carry the registry's assertion, unless --unverified is set.
    """
    from toolcrib_cli.example_tools import run

    if (issuer is None) is not unverified:
        raise CliError(
            "Specify either --issuer or --unverified.",
            hint="--issuer is the registry's public URL; with --unverified, anyone may call",
            code=Exit.USAGE,
        )
    assertions = None if issuer is None else _assertions(issuer, jwks_url, ca_file, tool or _EXAMPLES)
    try:
        run(
            host,
            port,
            data,
            assertions=assertions,
            announce=lambda address: typer.echo(f"example tools at {address.url}"),
        )
    except OSError as error:
        raise CliError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another --port"
        ) from error


def _assertions(issuer: str, jwks_url: str | None, ca_file: Path | None, tools: list[str]) -> CallAssertions:
    from jwt import PyJWTError

    from toolcrib_cli.example_tools import JWKS_PATH, CallAssertions, keys_at

    try:
        keys = keys_at(jwks_url or issuer.rstrip("/") + JWKS_PATH, ca_file)
    except OSError as error:
        raise CliError(
            f"--ca-file {ca_file} cannot be used: {error.strerror or error}",
            hint="specify a file with PEM certificates",
            code=Exit.USAGE,
        ) from error
    except PyJWTError as error:
        raise CliError(
            f"--issuer and --jwks-url: {error}",
            hint="specify the registry's public URL with --issuer, or the address of its keys with --jwks-url",
            code=Exit.USAGE,
        ) from error
    return CallAssertions(issuer, keys, tools)


@examples(
    Example(
        "toolcrib serve --config examples/cluster/registry.yaml",
        not_run="needs a cluster's keys and Weaviate: `make cluster-demo` runs it",
    )
)
def serve() -> None:
    """Run one replica of the registry, for a cluster."""


@examples(
    Example(
        "toolcrib operator --registry-service toolcrib-system/toolcrib-registry --token-file admin-token",
        not_run="needs a cluster: `make cluster-demo` runs it",
    )
)
def operator() -> None:
    """Run the operator, for a cluster."""


@examples(
    Example(
        "toolcrib token safecracker > token\n"
        "python -m toolcrib_runner.scripted --port 8090 &\n"
        "toolcrib agent run --name safecracker --task 'Use the calculator: 310 / 4.5' --token-file token \\\n"
        "  --registry-url http://127.0.0.1:8765 "
        "--model-url http://127.0.0.1:8090/v1"
    ),
    Example(
        "toolcrib agent run --mode batched --dialect lenient --name safecracker --token-file token \\\n"
        "  --registry-url http://127.0.0.1:8765 --model-url http://127.0.0.1:11434/v1 --model qwen2.5-coder \\\n"
        "  --task 'What is 310 / 4.5?'",
        not_run="needs a model of yours",
    ),
)
def agent_run() -> None:
    """Run one agent on one task."""


@examples(
    Example(
        "toolcrib memory --issuer http://127.0.0.1:8765",
        not_run="runs until it is stopped: examples/memory shows it at work",
    ),
)
def memory() -> None:
    """Run the service behind the Tools of examples/memory: agents store messages and recall them.

    It accepts only calls that carry the registry's assertion. Each agent has a memory of its own.
    """
