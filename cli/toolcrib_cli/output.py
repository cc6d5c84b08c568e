"""What commands print: tables with colour where a person looks, plain text in a pipe, JSON or YAML on request.

Text of other people is shown with control, bidirectional and zero-width characters escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolcrib.text import escape, hides, truncate


class Format(StrEnum):
    """Values of -o/--output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


_PROSE = ("description", "names", "state", "rule", "detail")


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


def _utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, to: Console | None = None) -> None:
    """Print rows under headings: a rich table for a person, tab-separated plain text in a pipe."""
    target = to or console()
    if not target.is_terminal:
        target.file.write("\t".join(c.upper() for c in columns) + "\n")
        for row in rows:
            target.file.write("\t".join(escape(str(cell)) for cell in row) + "\n")
        return
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        # names, ids and addresses stay whole, so that they can be copied; prose gives way
        prose = column in _PROSE
        drawn.add_column(column.upper(), overflow="fold" if prose else "ignore", no_wrap=not prose)
    for row in rows:
        drawn.add_row(*(Text(escape(str(cell))) for cell in row))
    target.print(drawn, crop=False)
