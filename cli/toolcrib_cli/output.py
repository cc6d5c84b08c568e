"""What commands print: tables with colour where a person looks, plain text in a pipe, JSON or YAML on request.

Text of other people is shown with control, bidirectional and zero-width characters escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import yaml
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from toolcrib.text import escape, hides, truncate


class Format(StrEnum):
    """Values of -o/--output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


_PROSE = ("description", "names", "state", "rule", "detail", "why", "why not", "token needs")
_LEAST_PROSE = 30
"""Cells: prose that would be folded narrower than this is not folded at all."""
_GAP = 2


def short(text: str, limit: int) -> str:
    """`text` cut for a person's table; whole in a pipe."""
    return truncate(text, limit) if sys.stdout.isatty() else text


def console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr; in a pipe it neither colours nor wraps."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 10_000
    return Console(file=stream, width=width, highlight=False, soft_wrap=not stream.isatty())


def line(text: object, *, style: str = "", stderr: bool = False) -> None:
    """Print one line of somebody's text, made safe; `style` shows only where a person looks."""
    # soft_wrap: a break inside a command or an address would spoil what is copied
    console(stderr=stderr).print(Text(escape(str(text)), style=style), soft_wrap=True)


def data(value: Any, output: Format) -> None:
    """Print `value` as JSON or YAML; characters that hide others are written as escapes of that format."""
    plain = json.dumps(value, indent=2, ensure_ascii=False)
    readable = _utf8() and not any(hides(c) for c in plain if c != "\n")
    if output is Format.JSON:
        sys.stdout.write((plain if readable else json.dumps(value, indent=2)) + "\n")
    else:
        sys.stdout.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=readable, width=110))


def heading(text: str) -> None:
    """Print a heading with an empty line before it."""
    console().print()
    line(text, style="bold")


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while something long goes on, where a person looks; it is told how much of how much is done."""
    shown = console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, to: Console | None = None) -> None:
    """Print rows under headings: a table for a person, tab-separated plain text in a pipe.

    Nothing is ever cut: where a terminal is too narrow, prose is folded, or else each row is one long line.
    """
    target = to or console()
    head = [c.upper() for c in columns]
    cells = [[escape(str(cell)) for cell in row] for row in rows]
    if not target.is_terminal:
        for row in (head, *cells):
            target.file.write("\t".join(row) + "\n")
        return
    widths = [max(map(cell_len, column)) for column in zip(head, *cells, strict=True)]
    # names, ids and addresses stay whole, so that they can be copied; prose gives way
    prose = [column in _PROSE for column in columns]
    least = sum(min(w, _LEAST_PROSE) if p else w for w, p in zip(widths, prose, strict=True))
    if least + _GAP * len(widths) > target.width:
        _long_lines(target, widths, head, cells)
        return
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for name, width, folds in zip(head, widths, prose, strict=True):
        drawn.add_column(
            name, overflow="fold", no_wrap=not folds, min_width=min(width, _LEAST_PROSE) if folds else width
        )
    for row in cells:
        drawn.add_row(*map(Text, row))
    target.print(drawn, crop=False)


def _long_lines(
    target: Console, widths: Sequence[int], head: Sequence[str], cells: Iterable[Sequence[str]]
) -> None:
    """A line for each row, which the terminal breaks where it ends: as kubectl does."""
    style = "bold"
    for row in (head, *cells):
        padded = (cell + " " * (w - cell_len(cell) + _GAP) for cell, w in zip(row, widths, strict=True))
        target.print(Text("".join(padded).rstrip(), style=style), soft_wrap=True)
        style = ""
