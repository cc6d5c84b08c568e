"""Figures that a run has measured: collected by tests, printed in one table at the end of the run."""

from collections.abc import Sequence

_LINES: dict[str, str] = {}
_TABLES: dict[str, tuple[Sequence[str], list[Sequence[str]]]] = {}


def note(what: str, value: str) -> None:
    """Keep one figure, with its unit in the text."""
    _LINES[what] = value


def table(title: str, columns: Sequence[str], rows: list[Sequence[str]]) -> None:
    """Keep a table."""
    _TABLES[title] = (columns, rows)


def lines() -> list[str]:
    """All of it as text."""
    width = max(map(len, _LINES), default=0)
    said = [f"{what:<{width}}  {value}" for what, value in _LINES.items()]
    for title, (columns, rows) in _TABLES.items():
        widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
        said += ["", title]
        said += [
            "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in [columns, *rows]
        ]
    return said
