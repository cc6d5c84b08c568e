"""Examples of commands: `--help` shows them, docs/reference/cli.md too, with what they printed when a test ran them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

_Command = TypeVar("_Command", bound=Callable[..., Any])
_ATTRIBUTE = "__toolcrib_examples__"


@dataclass(frozen=True, slots=True)
class Example:
    """One command line as it is typed into a shell, in a checkout of Toolcrib while the local mode runs.

    `lines` is how many lines of output the page shows, 0 for all; `exit` its exit code.
    """

    command: str
    lines: int = 0
    exit: int = 0
    until: str = ""
    """What it prints once it serves; it is stopped then. Empty: it ends by itself."""
    not_run: str = ""
    """Why no test runs it. Empty: one does."""
    also: str = ""
    """Options that the test adds, such as a free port."""


def examples(*given: Example | str) -> Callable[[_Command], _Command]:
    """A decorator that gives a command its examples."""
    made = tuple(Example(each) if isinstance(each, str) else each for each in given)

    def note(command: _Command) -> _Command:
        setattr(command, _ATTRIBUTE, made)
        return command

    return note


def of(command: Any) -> tuple[Example, ...]:
    """The examples of a command; empty if it has none."""
    return getattr(command, _ATTRIBUTE, ())


def epilog(command: Any) -> str:
    """The end of a command's `--help`, in rich's markup."""
    shown = [each.command.replace("[", "\\[") for each in of(command)]
    # an empty line is what keeps lines apart there
    return "\n\n".join(("[bold]Examples[/bold]", *("\n\n".join(each.split("\n")) for each in shown)))
