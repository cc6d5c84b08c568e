"""The page about the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer
from reference_pages.markdown import code, default_of, table

from toolcrib_cli import errors as cli_errors
from toolcrib_cli import examples, options
from toolcrib_cli import main as cli
from toolcrib_cli.commands import access
from toolcrib_cli.commands.service_command import ServiceCommand

RECORDED = Path(__file__).parent / "recorded" / "cli"
"""What the examples printed; tests/component/local/test_cli_examples.py writes and compares these files."""
COMPLETED = (
    ("agents", "`--as`, `token`", "the running local mode"),
    (
        "tools, namespaces",
        "`describe`, `load`, `call`, `search --namespace`",
        "what the agent may see, if the line, `TOOLCRIB_TOKEN` or `TOOLCRIB_TOKEN_FILE` names one; else all tools of the local mode",
    ),
    ("kinds, names, namespaces", "`get`", "the running local mode"),
    (
        "subjects, tools, scopes, namespaces",
        "`access`",
        "`--manifests`, the running local mode, or the cluster of your kubeconfig; nothing with `--registry`",
    ),
    ("tools with approval Manual, namespaces", "`approvals`", "the running local mode, or the cluster"),
)
_SETTINGS = {"serve": "registry", "operator": "operator", "agent run": "agent-runner"}


def cli_page() -> str:
    """Every command: usage, the options that only it has, examples with what they print."""
    text = "# The command line\n\n`toolcrib …`, or `kubectl toolcrib …`. `toolcrib COMMAND --help` shows options and examples.\n"
    text += "The examples use the local mode with [`examples/heist`](../../examples/heist): `toolcrib up --manifests examples/heist`.\n"
    text += "\n## Completion\n\n`toolcrib --install-completion` sets up your shell; `toolcrib --show-completion` prints the script.\n"
    text += "Besides commands and options, it completes:\n\n"
    text += table(("what", "where", "from"), COMPLETED)
    text += "\nA registry or cluster has 2 s to answer. Without an answer, the shell suggests nothing.\n"
    text += "\n## Common options\n\nCommands that take one of these list it under *Common options*.\n\n"
    shared = common()
    text += table(("option", "default", "what"), _rows(shared.values()))
    text += "\n## Exit codes\n\n"
    text += table(("code", "meaning"), [(int(c), m) for c, m in cli_errors.MEANINGS.items()])
    text += "\nServices (`serve`, `operator`, `agent run`): 0 asked to stop, 1 failed, 2 wrong settings. `agent run` has\n"
    text += "[more](../../agent_runner/README.md). With `-o json`, an error is one line of JSON on standard error: `error`, `hint`, `exit_code`.\n"
    questions = {_key(p): p for p in _params(access._where)}
    for name, command in commands().items():
        if name == "access what-can":
            only = [p for key, p in questions.items() if key not in shared]
            text += "\n## toolcrib access\n\nEvery question takes these options, and some common ones:\n"
            text += f"{_names(p for key, p in questions.items() if key in shared)}.\n\n"
            text += table(("option", "default", "what"), _rows(only))
        text += f"\n## toolcrib {name}\n\n{_first_paragraph(command.help)}\n"
        if name in _SETTINGS:
            text += f"Options: [settings](settings.md#{_SETTINGS[name]}), or `toolcrib {name} --help`.\n"
        else:
            text += _options(name, command, shared, questions)
        text += _examples(name, command)
    return text


def commands() -> dict[str, Any]:
    """`up`, …, `agent run`: every command of the command line, in the order of its help."""
    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {k}": c for k, c in inner.items()}
    for command in found.values():
        if isinstance(command, ServiceCommand):
            command.load()
    return found


def common() -> dict[str, Any]:
    """The options that several commands share."""

    def command(
        output: options.Output = options.Format.TABLE,
        as_: options.As = None,
        url: options.Url = None,
        data: options.Data = None,
        token_file: options.TokenFile = None,
        ca_file: options.CaFile = None,
        kubeconfig: options.Kubeconfig = None,
        context: options.Context = None,
        backend: options.Backends = None,
        hidden_text: options.HiddenText = options.Hidden.REFUSE,
        namespaced: options.DefaultNamespace = "default",
    ) -> None: ...

    return {_key(p): p for p in _params(command)}


def recorded(name: str, number: int) -> Path:
    """The file with what an example of a command printed."""
    return RECORDED / f"{name.replace(' ', '-')}-{number}.txt"


def _options(name: str, command: Any, shared: dict[str, Any], questions: dict[str, Any]) -> str:
    asks = name.startswith("access ")
    own = [p for p in command.params if _key(p) not in shared and not (asks and _key(p) in questions)]
    others = [p for p in command.params if _key(p) in shared and not (asks and _key(p) in questions)]
    arguments = " ".join(_argument(p) for p in own if p.param_type_name == "argument")
    text = f"\n```\ntoolcrib {' '.join(filter(None, (name, arguments, '[options]' if command.params else '')))}\n```\n"
    if own:
        text += "\n" + table(("argument or option", "default", "what"), _rows(own))
    if others:
        text += f"\nCommon options: {_names(others)}.\n"
    return text


def _examples(name: str, command: Any) -> str:
    text = ""
    for number, example in enumerate(examples.of(command.callback), 1):
        lines = example.command.split("\n")
        shown = "\n".join(f"$ {line}" for line in lines)
        if example.not_run:
            text += f"\n```console\n{shown}\n```\n"
            continue
        file = recorded(name, number)
        printed = file.read_text(encoding="utf-8").rstrip() if file.is_file() else ""
        text += f"\n```console\n{shown}\n{printed}\n```\n" if printed else f"\n```console\n{shown}\n```\n"
    return text


def _params(command: Callable[..., None]) -> list[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return list(typer.main.get_command(app).params)


def _key(p: Any) -> str:
    """Two options are the same if they have the same names and help."""
    return f"{'/'.join((*p.opts, *p.secondary_opts))}: {p.help}"


def _argument(p: Any) -> str:
    shown = f"{p.name.upper()}{'…' if p.nargs != 1 else ''}"
    return shown if p.required else f"[{shown}]"


def _names(params: Iterable[Any]) -> str:
    return ", ".join(code(p.opts[-1] if p.opts[-1].startswith("--") else p.opts[0]) for p in params)


def _rows(params: Iterable[Any]) -> Iterator[tuple[str, str, str]]:
    for p in params:
        more = f" Also `{p.envvar}`." if p.envvar else ""
        if p.param_type_name == "argument":
            shown = f"{p.name.upper()}{'…' if p.nargs != 1 else ''}"
            yield code(shown), "**required**" if p.required else "", (p.help or "") + more
            continue
        names = ", ".join(code(n) for n in (*p.opts, *p.secondary_opts))
        default = p.show_default if isinstance(p.show_default, str) else default_of(p.default)
        yield names, default, (p.help or "") + more


def _first_paragraph(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())
