"""What is odd about the tools at hand: one port for scanners of definitions, and all that is said of a tool in one list."""

from __future__ import annotations

from typing import Protocol

from toolcrib.lint import suspicions
from toolcrib.lint.lookalikes import NameLint
from toolcrib.lint.weaknesses import SearchLint, Weakness
from toolcrib.resources.tools import Tool, ToolState


class Scanner(Protocol):
    """Looks at definitions: warns of what models should not read. It decides nothing."""

    def update(self, key: str, tool: Tool | None) -> set[str]:
        """Note what `key` (`namespace/name`) is now, None: gone. Returns which others are to be judged again."""
        ...

    def weaknesses(self, tool: Tool) -> tuple[Weakness, ...]:
        """Everything suspicious about a tool that `update` was told of, what weighs most first. In linear time."""
        ...


class WordScanner:
    """The scanner that is built in: rules over words, names and neighbours of the same namespace."""

    def __init__(self) -> None:
        self._names = NameLint()

    def update(self, key: str, tool: Tool | None) -> set[str]:
        """As `Scanner`."""
        return self._names.update(key, tool)

    def weaknesses(self, tool: Tool) -> tuple[Weakness, ...]:
        """As `Scanner`."""
        if tool.spec.state is not ToolState.ACTIVE:
            return ()
        found = {w.reason: w for w in (*suspicions.alone(tool), *self._names.suspicions(tool))}
        return tuple(found[reason] for reason in suspicions.HINTS if reason in found)


class ToolLint:
    """All that is odd about tools: what a scanner says first, then what makes them hard to find."""

    def __init__(self, scanner: Scanner | None = None) -> None:
        self._parts: tuple[Scanner, Scanner] = (scanner or WordScanner(), SearchLint())

    def update(self, key: str, tool: Tool | None) -> set[str]:
        """Note what `key` (`namespace/name`) is now, None: gone. Returns which others are to be judged again."""
        return set[str]().union(*(part.update(key, tool) for part in self._parts))

    def weaknesses(self, tool: Tool) -> tuple[Weakness, ...]:
        """Everything about an active tool, what weighs most first."""
        return tuple(each for part in self._parts for each in part.weaknesses(tool))
