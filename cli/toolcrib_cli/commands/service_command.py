"""Commands that run a service: the service reads their options, and they look like those of every other command."""

from __future__ import annotations

import argparse
import importlib
import inspect
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand


class ServiceCommand(TyperCommand):
    """A command whose options are those of `parser()` of `module`, and whose work is its `main(argv)`.

    Services take seconds to load, so nothing of one is loaded before somebody asks for its options.
    """

    module: ClassVar[str]
    parser: ClassVar[str]
    _made: list[Any] | None = None

    def load(self) -> list[Any]:
        """The service's options, made when they are first asked for."""
        if self._made is None:
            self._made = params(importlib.import_module(self.parser).parser())
            self.params = self._made
        return self._made

    def get_params(self, ctx: Any) -> list[Any]:
        """These options, and --help."""
        self.load()
        return super().get_params(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what the service would refuse, in the words of every command."""
        ctx.meta["argv"] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the service; its exit code."""
        main = importlib.import_module(self.module).main
        raise typer.Exit(main(ctx.meta["argv"]) or 0)


class Registry(ServiceCommand):
    """`toolcrib serve`."""

    module = parser = "toolcrib_registry.main"


class Operator(ServiceCommand):
    """`toolcrib operator`."""

    module, parser = "toolcrib_operator.main", "toolcrib_operator.options"


class Runner(ServiceCommand):
    """`toolcrib agent run`."""

    module = parser = "toolcrib_runner.main"


class Memory(ServiceCommand):
    """`toolcrib memory`."""

    module = parser = "toolcrib_cli.memory.main"


def params(parser: argparse.ArgumentParser) -> list[Any]:
    """The options of a parser, as those of a command."""
    made = [_parameter(action) for action in parser._actions if action.dest != "help"]

    def command() -> None: ...

    command.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in made}
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return list(typer.main.get_command(app).params)


def _parameter(action: argparse.Action) -> inspect.Parameter:
    kind: Any = str | None
    names = list(action.option_strings)
    if isinstance(action, argparse.BooleanOptionalAction):
        kind, names = bool | None, ["/".join(names)]
    elif action.nargs == 0:
        kind = bool
    elif isinstance(action, argparse._AppendAction):
        kind = list[str] | None
    # some releases of Python add the default to the help of boolean actions, others do not
    about = (action.help or "").replace(" (default: %(default)s)", "").replace("%%", "%").replace("[", "\\[")
    metavar = action.metavar if isinstance(action.metavar, str) else None
    option = typer.Option(*names, help=about, metavar=metavar, show_default=False)
    return inspect.Parameter(
        action.dest.replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=False if kind is bool else None,
        annotation=Annotated[kind, option],
    )
