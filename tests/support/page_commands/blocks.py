"""Fenced blocks of a page and the commands in them.

The mark is the second word of a fence, which GitHub does not show:

    sh start      the command that starts the local mode; one a page
    sh run        commands, run in order in the page's one shell
    text output   what the commands of the block before print
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^```([a-z]*)(?: ([a-z]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKS = {("sh", "start"), ("sh", "run"), ("text", "output")}

# what differs from run to run, with what stands for it on both sides of a comparison
VARYING = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)"), "DATE"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{12,}\b"), "ID"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:ms|s)\b"), "DURATION"),
)


@dataclass(frozen=True)
class Block:
    """A marked block: `line` is that of its fence, `output` what the page says it prints."""

    line: int
    mark: str
    body: str
    output: str | None = None


@dataclass(frozen=True)
class Command:
    """A command of a block, with its continuation lines. One whose comment begins with "refused" or "no" has to fail."""

    line: int
    text: str

    @property
    def fails(self) -> bool:
        return re.search(r"\s# (refused|no)\b", self.text) is not None

    @property
    def changes_files(self) -> bool:
        return re.match(r"\s*(cp|mv|rm|sed|cat)\b", self.text) is not None


def marked(page: str) -> list[Block]:
    """The marked blocks of a page; an output belongs to the block before it. ValueError: a mark that is none."""
    found: list[Block] = []
    for fence in FENCE.finditer(page):
        language, mark, body = fence.groups()
        if mark is None:
            continue
        line = page.count("\n", 0, fence.start()) + 1
        if (language, mark) not in MARKS:
            raise ValueError(f"line {line}: no such mark: {language} {mark}")
        if mark != "output":
            found.append(Block(line, mark, body))
        elif not found or found[-1].mark != "run" or found[-1].output is not None:
            raise ValueError(f"line {line}: an output without a block that prints it")
        else:
            found[-1] = Block(found[-1].line, "run", found[-1].body, body)
    return found


def commands(block: Block) -> Iterator[Command]:
    """Its commands one by one: a line, and more lines while bash finds it incomplete."""
    held, began = "", 0
    for number, line in enumerate(block.body.splitlines(), block.line + 1):
        began = began if held else number
        held += f"{line}\n"
        if not held.strip() or held.strip().startswith("#"):
            held = ""
        elif not line.endswith("\\") and _complete(held):
            yield Command(began, held.rstrip("\n"))
            held = ""
    if held:
        raise ValueError(f"line {began}: the command does not end")


def _complete(text: str) -> bool:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    return done.returncode == 0 and not done.stderr


def agrees(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed. `…` stands for any text of a line, and for any lines where it is alone.

    Columns may be as wide as they like; dates, times, durations and long hexadecimal ids may differ.
    """
    pattern = ""
    for line in _plain(shown):
        if line == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(map(re.escape, line.split("…"))) + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _plain(printed))) is not None


def _plain(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        for pattern, name in VARYING:
            line = pattern.sub(name, line)
        if line := re.sub(r"\s+", " ", line).strip():
            lines.append(line)
    return lines
