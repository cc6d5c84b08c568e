"""The page about the command line."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from typing import Any

import typer
from reference_pages.markdown import code, default_of, table

from toolcrib_cli import errors as cli_errors
from toolcrib_cli import main as cli
from toolcrib_operator import options as operator_options
from toolcrib_registry import main as registry_main
from toolcrib_runner import main as runner_main


def cli_page() -> str:
    """Every command with its arguments and options."""
    text = "# The command line\n\n`toolcrib …`, also as `kubectl toolcrib …`. `--help` shows the same; `toolcrib --install-completion`\n"
    text += "sets up completion for your shell.\n\n## Exit codes\n\n"
    text += table(("code", "meaning"), [(int(c), m) for c, m in cli_errors.MEANINGS.items()])
    text += "\n`toolcrib serve`, `toolcrib operator` and `toolcrib agent run` end as their services do: 0 when asked to stop,\n"
    text += "2 for wrong settings, 1 for any other failure; the agent's codes are in\n[agent_runner/README.md](../../agent_runner/README.md).\n"
    parsers = {
        "serve": registry_main._parser(),
        "operator": operator_options.parser(),
        "agent run": runner_main._parser(),
    }
    for name, command in commands().items():
        text += f"\n## toolcrib {name}\n\n{_first_paragraph(command.help)}\n\n"
        if name in parsers:
            text += table(("option", "what"), _argparse_rows(parsers[name]))
            continue
        rows = list(_typer_rows(command))
        text += table(("argument or option", "default", "what"), rows) if rows else ""
    return text


def commands() -> dict[str, Any]:
    """`up`, …, `agent run`: every command of the command line, in the order of its help."""
    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {k}": c for k, c in inner.items()}
    return found


def _typer_rows(command: Any) -> Iterator[tuple[str, str, str]]:
    for p in command.params:
        more = f" Also `{p.envvar}`." if p.envvar else ""
        if p.param_type_name == "argument":
            shown = f"{p.name.upper()}{'…' if p.nargs != 1 else ''}"
            yield code(shown), "**required**" if p.required else "", (p.help or "") + more
            continue
        names = ", ".join(code(n) for n in (*p.opts, *p.secondary_opts))
        default = p.show_default if isinstance(p.show_default, str) else default_of(p.default)
        yield names, default, (p.help or "") + more


def _argparse_rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.dest == "help":
            continue
        names = ", ".join(code(n) for n in action.option_strings)
        # some releases of Python add the default to the help of boolean actions, others do not
        about = (action.help or "").replace(" (default: %(default)s)", "").replace("%%", "%")
        yield names, about


def _first_paragraph(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())
