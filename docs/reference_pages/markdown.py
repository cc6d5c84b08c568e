"""What all pages are made of: tables, code, defaults."""

from __future__ import annotations

from collections.abc import Iterable


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; bars within cells are escaped."""
    heads = list(columns)
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def code(value: object) -> str:
    """As code; nothing for nothing."""
    return f"`{value}`" if value not in ("", None) else ""


def default_of(value: object) -> str:
    """How the default of an option is shown; nothing where there is none."""
    if value is None or value is False or value == () or value == []:
        return ""
    return code("yes" if value is True else getattr(value, "value", value))
