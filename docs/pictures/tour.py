"""The tour of the local mode as a moving picture: `tour-light.svg` and `tour-dark.svg`, drawn from `tour.cast`.

`python docs/pictures/tour.py` (part of `make generate`) draws them. With `--record` it makes the recording first: it starts a real
`toolcrib up` over the examples, waits for its tour, then types SESSION in a second shell. tour.cast is an asciicast (version 2).
The home folder, the port and the folder of the environment are replaced, pauses are shortened, and warnings that the recording
machine was busy are left out; nothing else is edited.
"""

import argparse
import codecs
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.style import Style

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
START = "make up"
SESSION = (
    (
        "toolcrib tools --as hacker",
        "toolcrib call calculator expression='2 * (3 + 4)' --as safecracker",
        'toolcrib search "create an issue on a repository" --as librarian',
    ),
    (
        "toolcrib call database_query query='select 1' --as safecracker",
        "cp examples/access/changes/50-safecracker-database.yaml examples/heist/",
        "toolcrib call database_query query='select 1' --as safecracker",
        "rm examples/heist/50-safecracker-database.yaml",
        "toolcrib call database_query query='select 1' --as safecracker",
    ),
)
"""The commands of each screen after the first."""
COLUMNS = 108
CLEAR = "\x1b[2J\x1b[H"
TITLE = "The tour of the local mode, recorded"
DESCRIPTION = (
    "A terminal. First, make up starts Toolcrib and shows its healthy parts, what each agent discovers, and one call that is made "
    "and counted. Then a second shell lists the hacker's tools, calls the calculator as the safecracker, and searches 2,651 tools "
    "by meaning. At the end the safecracker is refused the database; copying a binding into the folder grants it, and removing the "
    "file revokes it."
)
DEADLINE = 120.0
"""Seconds that a command may take while it is recorded."""
BETWEEN, READ, LONGEST = 1.2, 5.0, 0.7
"""Seconds: before a command is typed; at the end of a screen; the longest pause that is kept."""


# ------------------------------------------------------------------------------------------------------------- record


class Recording:
    """Events of an asciicast, made while programs run in a terminal of their own."""

    def __init__(self, checkout: Path, home: Path) -> None:
        self._checkout, self._home = checkout, home
        self._now = 0.0
        self._port = ""
        self._unrecorded = ""
        self.events: list[tuple[float, str]] = []

    def pause(self, seconds: float) -> None:
        """Let time pass in the recording."""
        self._now += seconds

    def show(self, text: str) -> None:
        """Print something now."""
        self.events.append((round(self._now, 2), text))

    def run(self, argv: list[str], until: str = "") -> int:
        """Run a program and record what it prints; return its pid once it printed `until`, or 0 when it has ended."""
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self._checkout)
            os.execvpe(argv[0], argv, self._environment())
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        said, last, deadline = "", time.monotonic(), time.monotonic() + DEADLINE
        while until == "" or until not in said:
            if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"{argv[0]} printed {said}")
            try:
                text = decode(os.read(terminal, 65536))
            except OSError:  # its end of the terminal is closed
                os.waitpid(child, 0)
                return 0
            now = time.monotonic()
            self.pause(min(now - last, LONGEST))
            last = now
            said += text
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", said):
                self._port = self._port or found.group(1)
            self.show(self._public(text))
        threading.Thread(target=self._drain, args=(terminal,), daemon=True).start()
        return child

    def wait(self, text: str) -> None:
        """Until the program that runs beside has printed this; it is not recorded."""
        deadline = time.monotonic() + DEADLINE
        while text not in self._unrecorded:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{text!r} is not in {self._unrecorded!r}")
            time.sleep(0.1)

    def _drain(self, terminal: int) -> None:
        """Read what is no longer recorded: a program whose terminal is full stands still."""
        try:
            while piece := os.read(terminal, 65536):
                self._unrecorded += piece.decode(errors="replace")
        except OSError:
            os.close(terminal)

    def _environment(self) -> dict[str, str]:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("TOOLCRIB_", "XDG_", "KUBE", "LINES"))
        }
        path = f"{Path(sys.executable).parent}:{kept['PATH']}"
        return {
            **kept,
            "HOME": str(self._home),
            "PATH": path,
            "COLUMNS": str(COLUMNS),
            "TERM": "xterm-256color",
        }

    def _public(self, text: str) -> str:
        text = re.sub(r"^.*WARNING toolcrib\.process\.watchdog: .*\r?\n", "", text, flags=re.MULTILINE)
        text = text.replace(str(self._home), "~").replace(f"{sys.prefix}/", ".venv/")
        return text.replace(f"127.0.0.1:{self._port}", "127.0.0.1:8765") if self._port else text


def record() -> str:
    """The text of a new tour.cast."""
    with tempfile.TemporaryDirectory() as folder:
        checkout, home = Path(folder, "toolcrib"), Path(folder, "home")
        shutil.copytree(
            ROOT / "examples", checkout / "examples", ignore=shutil.ignore_patterns("__pycache__")
        )
        home.mkdir()
        made = Recording(checkout, home)
        made.show(f"$ {START}\r\n")
        recipe = subprocess.run(
            ["make", "-n", START.split()[1]], cwd=ROOT, capture_output=True, text=True, check=True
        )
        up = ["toolcrib", *recipe.stdout.splitlines()[-1].partition("/toolcrib ")[2].split(), "--port", "0"]
        server = made.run(up, until="Ctrl-C stops everything")
        try:
            made.wait("search is hybrid now")  # a search before ranks by what is indexed
            for screen in SESSION:
                made.pause(READ)
                made.show(CLEAR)
                for line in screen:
                    made.pause(BETWEEN)
                    made.show(f"$ {line}\r\n")
                    made.run(["bash", "-c", line])
                    if line.startswith(("cp ", "rm ")):
                        _in_effect(checkout, home)
        finally:
            os.kill(server, signal.SIGTERM)
            os.waitpid(server, 0)
        made.pause(READ)
        made.show("")
    height = max(screen.rows for screen in screens(made.events))
    head = {"version": 2, "width": COLUMNS, "height": height, "title": TITLE}
    return "".join(
        json.dumps(line, ensure_ascii=False) + "\n" for line in (head, *((t, "o", d) for t, d in made.events))
    )


def _in_effect(checkout: Path, home: Path) -> None:
    """Wait for a changed file as a person does who looks up: until the local mode answers by it."""
    granted = (checkout / "examples/heist/50-safecracker-database.yaml").exists()
    environment = {**os.environ, "HOME": str(home)}
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        done = subprocess.run(
            ["toolcrib", "tools", "--as", "safecracker"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        if ("database_query" in done.stdout) == granted:
            return
    raise TimeoutError("the local mode did not take the changed file")


# ------------------------------------------------------------------------------------------------------------- draw


@dataclass(frozen=True)
class Palette:
    """Colours of one file. `ansi` are the terminal's eight."""

    page: str
    bar: str
    text: str
    faint: str
    prompt: str
    ansi: tuple[str, ...]


PALETTES = {
    "light": Palette("#f6f8fa", "#d1d9e0", "#1f2328", "#59636e", "#0969da",
                     ("#1f2328", "#cf222e", "#116329", "#7d4e00", "#0969da", "#8250df", "#1b7c83", "#59636e")),
    "dark": Palette("#161b22", "#3d444d", "#f0f6fc", "#9198a1", "#58a6ff",
                    ("#9198a1", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#f0f6fc")),
}  # fmt: skip
SIZE, ADVANCE, LEADING, MARGIN, BAR = 12.0, 7.22, 16.5, 10, 26


@dataclass(frozen=True)
class Screen:
    """What stands between two clearings: lines with the second each appears at, and when the screen begins and ends."""

    lines: tuple[tuple[float, str], ...]
    begins: float
    ends: float

    @property
    def rows(self) -> int:
        """Rows after wrapping is done by the program that printed: one a line."""
        return len(self.lines)


def screens(events: list[tuple[float, str]]) -> list[Screen]:
    """The screens of a recording. A carriage return without a line feed begins the line again."""
    found: list[Screen] = []
    held: list[tuple[float, str]] = []
    line, began, at = "", events[0][0], None
    for moment, text in events:
        if text == CLEAR:
            found.append(Screen(tuple(held), began, moment))
            held, line, at, began = [], "", None, moment
            continue
        for part in re.split(r"(\r?\n)", text):
            if part in ("\n", "\r\n"):
                held.append((moment if at is None else at, line.rpartition("\r")[2]))
                line, at = "", None
            elif part:
                line, at = line + part, moment if at is None else at
    return [*found, Screen(tuple(held), began, events[-1][0])]


def draw(cast: str, colours: Palette) -> str:
    """The moving picture of a recording. Readers who prefer no motion see the last screen."""
    _, *lines = (json.loads(line) for line in cast.splitlines())
    shown = screens([(moment, text) for moment, _, text in lines])
    total = shown[-1].ends
    width = round(COLUMNS * ADVANCE + 2 * MARGIN)
    height = round(BAR + max(s.rows for s in shown) * LEADING + 2 * MARGIN)
    body, rules = [], []
    for number, screen in enumerate(shown):
        last = screen is shown[-1]
        rules.append(_visible(f"s{number}", screen.begins, screen.ends, total, last))
        rows = []
        for row, (moment, text) in enumerate(screen.lines):
            spans = _spans(text, colours)
            if not spans:
                continue
            y = BAR + MARGIN + (row + 0.8) * LEADING
            name = f"t{round(moment * 100)}"
            rules.append(_visible(name, moment, total, total, True))
            rows.append(f'<text class="{name}" x="{MARGIN}" y="{y:g}">{spans}</text>')
        body.append(f'<g class="s{number}">\n' + "\n".join(rows) + "\n</g>")
    still = "".join(f".s{n}{{opacity:0}}" for n in range(len(shown) - 1))
    dots = "".join(f'<circle cx="{16 + 18 * n}" cy="13" r="5" fill="{colours.bar}"/>' for n in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="title description">\n<title id="title">{escape(TITLE)}</title>\n'
        f'<desc id="description">{escape(DESCRIPTION)}</desc>\n<style>\n'
        "text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        f"font-size:{SIZE:g}px;fill:{colours.text};white-space:pre}}\n"
        f"@media (prefers-reduced-motion:no-preference){{\n{chr(10).join(dict.fromkeys(rules))}\n}}\n"
        f"@media (prefers-reduced-motion:reduce){{{still}}}\n</style>\n"
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{colours.page}" stroke="{colours.bar}"/>\n'
        f"{dots}\n" + "\n".join(body) + "\n</svg>\n"
    )


def _visible(name: str, begins: float, ends: float, total: float, stays: bool) -> str:
    """A rule that shows what has this class from one second to another, in a loop of `total` seconds."""
    first, last = (100 * moment / total for moment in (begins, ends))
    frames = f"0%{{opacity:0}}{first:.2f}%{{opacity:1}}" if first > 0 else "0%{opacity:1}"
    frames += "" if stays else f"{last:.2f}%{{opacity:0}}100%{{opacity:0}}"
    frames += "100%{opacity:1}" if stays else ""
    return f".{name}{{animation:{name} {total:.2f}s step-end infinite}}@keyframes {name}{{{frames}}}"


def _spans(line: str, colours: Palette) -> str:
    """A line of the terminal as text spans; "" for an empty one. Each word keeps its column, whatever the font is."""
    text = next(iter(AnsiDecoder().decode(line)), None)
    if text is None or not text.plain.strip():
        return ""
    text.truncate(COLUMNS, overflow="ellipsis")  # a terminal would wrap it
    styles = [Style.null()] * len(text.plain)
    for span in text.spans:
        for at in range(span.start, min(span.end, len(styles))):
            styles[at] += span.style if isinstance(span.style, Style) else Style.parse(span.style)
    made, column = "", 0
    prompt = text.plain.startswith("$ ")
    for (style, _), group in groupby(zip(styles, text.plain, strict=True), lambda pair: (pair[0], False)):
        piece = "".join(letter for _, letter in group)
        for word in re.finditer(r"\S+(?: \S+)*", piece):
            x = MARGIN + (column + word.start()) * ADVANCE
            length = len(word.group()) * ADVANCE
            made += (
                f'<tspan x="{x:.1f}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"{_look(style, prompt, colours)}>'
                f"{escape(word.group(), quote=False)}</tspan>"
            )
        column += len(piece)
    return made


def _look(style: Style, prompt: bool, colours: Palette) -> str:
    look = ""
    if prompt:
        look += f' fill="{colours.prompt}"'
    elif style.dim:
        look += f' fill="{colours.faint}"'
    elif style.color is not None and style.color.number is not None:
        look += f' fill="{colours.ansi[style.color.number % 8]}"'
    return look + (' font-weight="700"' if style.bold or prompt else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="run the tour and write tour.cast first")
    if parser.parse_args().record:
        (HERE / "tour.cast").write_text(record(), encoding="utf-8")
    cast = (HERE / "tour.cast").read_text(encoding="utf-8")
    for name, colours in PALETTES.items():
        (HERE / f"tour-{name}.svg").write_text(draw(cast, colours), encoding="utf-8")


if __name__ == "__main__":
    main()
