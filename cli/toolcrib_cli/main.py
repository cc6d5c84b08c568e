"""The command line `toolcrib`, also reachable as `kubectl toolcrib`; its services are programs of their own too.

Commands import what they need when they run: `toolcrib --help` stays quick, and a client needs no server parts.
"""

from __future__ import annotations

import functools
import json
import signal
import sys
import threading

from toolcrib_cli.errors import CliError, Exit

try:
    from collections.abc import Callable, Sequence
    from pathlib import PurePath
    from typing import Annotated, Any, cast

    import typer

    from toolcrib import __version__
    from toolcrib_cli import examples, options, output
    from toolcrib_cli.commands import (
        access,
        access_requests,
        access_suggest,
        agents,
        agents_view,
        approvals,
        audit,
        audit_replay,
        authors,
        calls,
        canaries,
        doctor,
        get,
        health,
        imports,
        manifests_view,
        mcp,
        mcp_clients,
        service_command,
        services,
        sessions,
        sessions_view,
    )
    from toolcrib_cli.output import Format
except KeyboardInterrupt:
    # Loading these takes most of the start; who stops it there wants no traceback either.
    raise SystemExit(int(Exit.INTERRUPTED)) from None

app = typer.Typer(
    name="toolcrib",
    help="Tool governance for AI agents on Kubernetes: declare tools and grants, discover and call them at run time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


PROGRAMS = {
    "toolcrib-registry": ("serve",),
    "toolcrib-operator": ("operator",),
    "toolcrib-runner": ("agent", "run"),
}
"""The command that each service's program runs, by the program's name."""


@examples.examples("toolcrib version", "toolcrib version -o json")
def version(out: options.Output = Format.TABLE) -> None:
    """Print the versions of Toolcrib and Python."""
    python = ".".join(map(str, sys.version_info[:3]))
    if out is not Format.TABLE:
        output.data({"toolcrib": __version__, "python": python}, out)
        return
    sys.stdout.write(f"toolcrib {__version__} (Python {python})\n")


_LOCAL, _CLUSTER, _AGENTS, _MANIFESTS = "Local mode", "Cluster", "As an agent", "Manifests"
_COMMANDS: tuple[tuple[str, Callable[..., None], str | None], ...] = (
    ("up", services.up, _LOCAL),
    ("example-tools", services.example_tools, _LOCAL),
    ("token", agents_view.token, _LOCAL),
    ("get", get.get, _LOCAL),
    ("tools", agents_view.tools, _AGENTS),
    ("search", agents_view.search, _AGENTS),
    ("describe", agents_view.describe, _AGENTS),
    ("load", agents_view.load, _AGENTS),
    ("call", agents_view.call, _AGENTS),
    ("mcp", mcp.mcp, _AGENTS),
    ("validate", manifests_view.validate, _MANIFESTS),
    ("init", authors.init, _MANIFESTS),
    ("try", authors.try_tool, _MANIFESTS),
    ("crds", manifests_view.crds, _MANIFESTS),
    ("health", health.health, _CLUSTER),
    ("doctor", doctor.doctor, _CLUSTER),
    ("version", version, None),
)
for _name, _command, _panel in _COMMANDS:
    app.command(_name, rich_help_panel=_panel, epilog=examples.epilog(_command))(_command)

app.add_typer(mcp_clients.app, name="client", rich_help_panel=_AGENTS)
app.add_typer(imports.app, name="import", rich_help_panel=_MANIFESTS)
app.add_typer(access.app, name="access", rich_help_panel=_CLUSTER)
app.add_typer(approvals.app, name="approvals", rich_help_panel=_CLUSTER)
app.add_typer(canaries.app, name="canary", rich_help_panel=_CLUSTER)
app.add_typer(calls.app, name="calls", rich_help_panel=_CLUSTER)
access.app.command("suggest", epilog=examples.epilog(access_suggest.suggest))(access_suggest.suggest)
for _name, _command in (
    ("requests", access_requests.requests),
    ("approve", access_requests.approve),
    ("reject", access_requests.reject),
):
    access.app.command(_name, epilog=examples.epilog(_command))(_command)
audit.app.command("replay", epilog=examples.epilog(audit_replay.replay))(audit_replay.replay)
app.add_typer(audit.app, name="audit", rich_help_panel=_CLUSTER)
agent = typer.Typer(help="Run agents, stop them, and start them again.", no_args_is_help=True)
app.add_typer(agent, name="agent", rich_help_panel=_AGENTS)
for _name, _command in (("suspend", agents.suspend), ("resume", agents.resume)):
    agent.command(_name, epilog=examples.epilog(_command))(_command)
session = typer.Typer(
    help="Run several agents in turns, and see what came of it. Also: toolcrib sessions.",
    no_args_is_help=True,
)
app.add_typer(session, name="session", rich_help_panel=_AGENTS)
for _name, _command in (
    ("run", sessions.run),
    ("resume", sessions.resume),
    ("pause", sessions.pause),
    ("list", sessions_view.list_),
    ("show", sessions_view.show),
    ("tools", sessions_view.tools),
    ("compare", sessions_view.compare),
    ("export", sessions_view.export),
    ("top", sessions_view.top),
):
    session.command(_name, epilog=examples.epilog(_command))(_command)
for _group, _name, _command, _class, _panel in (
    (app, "serve", services.serve, service_command.Registry, _CLUSTER),
    (app, "operator", services.operator, service_command.Operator, _CLUSTER),
    (app, "memory", services.memory, service_command.Memory, _CLUSTER),
    (agent, "run", services.agent_run, service_command.Runner, None),
):
    _group.command(_name, cls=_class, rich_help_panel=_panel, epilog=examples.epilog(_command))(_command)


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit(Exit.OK)


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Options before any command."""


def _with_value(argument: str) -> str:
    """The argument as typer reads it: a value of its options cannot be absent."""
    return f"{argument}={services.ALL_STDIO}" if argument == "--allow-stdio" else argument


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; every end is an exit code of `errors.Exit`."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["sessions"]:
        given[0] = "session"
    as_json = _wants_json(given)
    if threading.current_thread() is threading.main_thread():
        # It is ignored from the start where a shell runs us in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ended = _of_the_program()(
            args=[_with_value(each) for each in given],
            prog_name=_name_of_program(),
            standalone_mode=False,
        )
        code = ended if isinstance(ended, int) else Exit.OK
    except CliError as error:
        _say(error.message, error.hint, error.code, as_json)
        code = error.code
    except typer.Exit as ended_early:
        code = ended_early.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        code = Exit.OK
    except Exception as error:
        # typer's vendored or installed click: usage errors have a message, and know where they are
        if not callable(message := getattr(error, "format_message", None)):
            raise
        code = getattr(error, "exit_code", Exit.USAGE)
        where = getattr(getattr(error, "ctx", None), "command_path", _name_of_program())
        if type(error).__name__ == "NoArgsIsHelpError" and not as_json:
            error.show()  # type: ignore[attr-defined]
        else:
            _say(message().replace("Value error, ", ""), f"see `{where} --help`", code, as_json)
    raise SystemExit(int(code))


@functools.cache
def _commands() -> Callable[..., object]:
    """The commands as click has them. Building them takes 0.1 s: once, also for a process that runs many."""
    return typer.main.get_command(app)


def _of_the_program() -> Callable[..., object]:
    """What the program runs: a service's program its command alone."""
    found: Any = _commands()
    for word in PROGRAMS.get(_name_of_program(), ()):
        found = found.commands[word]
    return cast("Callable[..., object]", found)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether errors are for a program, as the output is: they may come before the command line is understood."""
    asked = (a if a.startswith("-") else f"-o{a}" if before in ("-o", "--output") else ""
             for before, a in zip(("", *arguments), arguments, strict=False))  # fmt: skip
    return any(a in ("-ojson", "-o=json", "--output=json") for a in asked)


def _say(message: str, hint: str, code: int, as_json: bool) -> None:
    if as_json:
        sys.stderr.write(json.dumps({"error": message, "hint": hint or None, "exit_code": int(code)}) + "\n")
        return
    first, *rest = message.split("\n")
    output.line(f"error: {first}", style="bold red", stderr=True)
    for more in rest:
        output.line(more, stderr=True)
    if hint:
        output.line(f"  hint: {hint}", stderr=True)


def _name_of_program() -> str:
    name = PurePath(sys.argv[0]).name if sys.argv else ""
    return "kubectl toolcrib" if name == "kubectl-toolcrib" else name if name in PROGRAMS else "toolcrib"


if __name__ == "__main__":
    main()
