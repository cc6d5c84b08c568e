"""The table of docs/guides/frameworks.md: written from a run, and read back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frameworks.agent import ROOT

PAGE = ROOT / "docs" / "guides" / "frameworks.md"
YES, NO = "yes", "**no**"
_BEGIN, _END = "<!-- made by `make frameworks`:", "<!-- end -->"


@dataclass(frozen=True)
class Row:
    """One framework in one way; `cells` by check."""

    framework: str
    version: str
    way: str
    cells: Mapping[str, str]

    def line(self) -> str:
        """In Markdown."""
        cells = (self.framework, self.version, self.way, *self.cells.values())
        return f"| {' | '.join(' '.join(cell.split())[:200].replace('|', '/') for cell in cells)} |"


def rendered(rows: Sequence[Row]) -> str:
    """The whole table."""
    heads = ("framework", "version", "by", *(rows[0].cells if rows else ()))
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(row.line() for row in rows)])


def digests() -> dict[str, str]:
    """What the rows of the page rest on, by framework."""
    found = re.search(re.escape(_BEGIN) + r"(.*?)-->", PAGE.read_text(), re.DOTALL)
    return dict(pair.split("=") for pair in found[1].split()) if found else {}


def differing(rows: Sequence[Row]) -> list[str]:
    """The rows that the page has otherwise."""
    lines = PAGE.read_text().splitlines()
    return [row.line() for row in rows if row.line() not in lines]


def write(rows: Sequence[Row], rest_on: Mapping[str, str]) -> None:
    """Put the table into the page."""
    named = " ".join(f"{name}={digest}" for name, digest in rest_on.items())
    made = f"{_BEGIN} {named} -->\n\n{rendered(rows)}\n\n{_END}"
    old = re.escape(_BEGIN) + r".*" + re.escape(_END)
    PAGE.write_text(re.sub(old, lambda _: made, PAGE.read_text(), flags=re.DOTALL))
