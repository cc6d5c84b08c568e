"""A reader's machine for the marked blocks of pages: a copy of the examples, local modes on free ports, a shell for each page."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from page_commands.blocks import Block, Command, agrees, commands, marked
from realparts import loaded
from realparts.processes import Child

ROOT = Path(__file__).parents[3]
SHOWN = "127.0.0.1:8765"
"""The address on pages, for which that of the running local mode stands."""
START = "toolcrib up --manifests examples/heist"
"""What runs for a page that starts nothing itself."""
QUICK = ("--port", "0", "--no-tour", "--embedder", "none")
"""Embedding the catalog would keep the machine busy for a minute: searches are lexical here."""
PATIENCE = 240.0
IN_EFFECT = 10
"""Seconds until a changed file has to be in effect."""


class Reader:
    """A context manager. `read` runs the blocks of a page and says what went otherwise than the page says.

    Pages with the same start command share a local mode: each has to leave the manifests as it found them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checkout = folder / "toolcrib"
        self._running: dict[str, tuple[Path, str, Child]] = {}
        self._bin = folder / "bin"

    def __enter__(self) -> Self:
        self._checkout.mkdir(parents=True)
        shutil.copytree(
            ROOT / "examples", self._checkout / "examples", ignore=shutil.ignore_patterns("__pycache__")
        )
        for name in ("crds", "Makefile"):
            (self._checkout / name).symlink_to(ROOT / name)
        (self._checkout / ".venv").symlink_to(sys.prefix)
        self._bin.mkdir()
        # not a link: Python looks for its environment beside the path it was started by
        (self._bin / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        (self._bin / "python").chmod(0o755)
        loaded.write_command(self._bin)
        return self

    def __exit__(self, *error: object) -> None:
        for _, _, child in self._running.values():
            child.stop()

    def read(self, page: str) -> list[str]:
        """Run a page's marked blocks; a line for each surprise, with the page's line number."""
        blocks = marked(page)
        home, address = self._local_mode(next((b.body for b in blocks if b.mark == "start"), START))
        runs = [(b, list(commands(b))) for b in blocks if b.mark == "run"]
        ended = self._shell([c for _, each in runs for c in each], home, address)
        surprises: list[str] = []
        for block, each in runs:
            surprises += _surprises(block, each, ended)
        return surprises

    def _local_mode(self, command: str) -> tuple[Path, str]:
        """Home folder and address of the local mode that a start command starts, or of the running one."""
        words = shlex.split(command.strip(), comments=True)
        if words[0] == "make":
            dry = subprocess.run(
                ["make", "-n", *words[1:]],
                cwd=ROOT,
                env=_environment(self._folder, self._bin),
                capture_output=True,
                text=True,
                check=True,
            ).stdout.splitlines()
            words = ["toolcrib", *shlex.split(dry[-1].partition("/toolcrib ")[2])]
        key = shlex.join(words)
        if key not in self._running:
            home = self._folder / f"home{len(self._running)}"
            home.mkdir()
            log = home / "up.log"
            argv = [sys.executable, "-m", "toolcrib_cli", *words[1:], *QUICK]
            child = Child("toolcrib up", argv, log=log, env=_environment(home, self._bin), cwd=self._checkout)
            self._running[key] = (home, "", child)
            child.start()
            child.wait_ready(lambda: "\nup in " in log.read_text(encoding="utf-8"), timeout=PATIENCE)
            found = re.search(r"registry\t.*\thttp://(\S+)", log.read_text(encoding="utf-8"))
            assert found is not None, log.read_text(encoding="utf-8")
            self._running[key] = (home, found.group(1), child)
        home, address, _ = self._running[key]
        return home, address

    def _shell(self, each: Iterable[Command], home: Path, address: str) -> dict[int, tuple[int, str]]:
        """Exit status and output of each command, by its line."""
        folder = home / "said"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        script, changed = [f"cd {shlex.quote(str(self._checkout))}"], False
        for command in each:
            said = shlex.quote(str(folder / str(command.line)))
            run = (
                f"eval {shlex.quote(command.text.replace(SHOWN, address))} </dev/null >{said} 2>&1; status=$?"
            )
            if changed and not command.changes_files:
                # a saved file is in effect within a second: a reader is slower than that, a script is not
                test = "-ne" if command.fails else "-eq"
                run = f"began=$SECONDS; until {run}; [ $status {test} 0 ] || [ $((SECONDS - began)) -ge {IN_EFFECT} ]; do sleep 0.1; done"
            script += [run, f"echo $status >{said}.status"]
            changed = changed or command.changes_files
        child = Child("a page's shell", ["bash", "-c", "\n".join(script)], log=home / "shell.log",
                      env=_environment(home, self._bin))  # fmt: skip
        child.start()
        try:
            child.wait(PATIENCE)
        finally:
            child.stop()
        return {
            int(file.stem): (
                int(file.read_text()),
                file.with_suffix("").read_text(encoding="utf-8").replace(address, SHOWN),
            )
            for file in folder.glob("*.status")
        }


def _environment(home: Path, programs: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        # `make test ARGS=…` would give its arguments to each `make` of a page
        if not name.startswith(("TOOLCRIB_", "XDG_", "KUBE", "MAKE")) and name != "ARGS"
    }
    return {**kept, "HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}


def _surprises(block: Block, each: list[Command], ended: dict[int, tuple[int, str]]) -> Iterable[str]:
    printed = ""
    for command in each:
        if command.line not in ended:
            yield f"line {command.line}: not run to its end: {command.text}"
            return
        status, said = ended[command.line]
        printed += said
        if (status != 0) != command.fails:
            wanted = "a refusal" if command.fails else "0"
            yield f"line {command.line}: exit {status} instead of {wanted}: {command.text}\n{said}"
    if block.output is not None and not agrees(block.output, printed):
        yield f"line {block.line}: the page shows\n{block.output}it printed\n{printed}"
