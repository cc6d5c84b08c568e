"""What continuous integration runs: each step within its time, flaky tests told from broken ones, times in tables.

    .ci/run            every step; exit status 0 if all passed, 1 if one was refused
    .ci/run NAME…      only these steps (`.ci/run --list` names them)

The first steps run alone; then two lanes run side by side, each with its steps in order, since many tests wait for
clocks and servers and leave a core idle. A lane that is done takes the next of the steps that belong to none. A refusal
ends the steps that run beside it.

Where tests of a step fail, their files run again in a process of their own, at most twice and for ten minutes in all.
What passes then is printed in the section FLAKY at the end and refuses nothing; `outcomes.refusal` says what never
runs again. Standard library only: it runs before there is an environment.
"""

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO

if __package__ in (None, ""):
    # Run as a file: Python put this folder first.
    sys.path.remove(str(Path(__file__).resolve().parent))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ci import outcomes
from ci.steps import EITHER, Step, steps, without_repetition

ROOT = Path(__file__).resolve().parents[3]
REPORT = "TOOLCRIB_CI_REPORT"
AGAIN = 2
AGAIN_SECONDS = 600.0
KILL_AFTER = 10.0
POLL = 0.5


@dataclass
class Run:
    """What has happened so far. `flaky` holds test and first failure."""

    environ: Mapping[str, str]
    folder: Path
    began: float = field(default_factory=time.monotonic)
    took: list[tuple[str, float, str]] = field(default_factory=list)
    flaky: list[tuple[str, str]] = field(default_factory=list)
    phases: list[outcomes.Phase] = field(default_factory=list)
    again_left: float = AGAIN_SECONDS
    refused: dict[str, str] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def lane(self, steps: Iterable[Step], beside: bool) -> None:
        """Run steps in their order, until one is refused here or in another lane; `beside`: each line names its step."""
        for step in steps:
            if self.over.is_set():
                return
            if why := self.step(step, f"{step.name:<15} | " if beside else ""):
                self.refused.setdefault(step.name, why)
                self.over.set()

    def step(self, step: Step, prefix: str = "") -> str:
        """Run a step; why it is refused, or empty (also where it was ended since another one was refused)."""
        say(f"\n=== {step.title}")
        began = time.monotonic()
        report = self.folder / f"{step.name}.jsonl"
        command = ["make", "--no-print-directory", *step.make]
        status = bounded(command, step.seconds, {**self.environ, REPORT: str(report)}, self.over, prefix)
        why = self._judge(step, status, report, prefix)
        ended = status == ENDED
        verdict = "ended" if ended else "refused" if why else "passed"
        self.took.append((step.name, time.monotonic() - began, verdict))
        say(f"\n=== {step.name} {verdict} after {minutes(time.monotonic() - began).strip()}")
        return why

    def _judge(self, step: Step, status: int, report: Path, prefix: str) -> str:
        phases = outcomes.read(report)
        self.phases += phases
        if status in (0, ENDED):
            return ""
        if status == TIMED_OUT:
            return f"not done after {step.seconds:g} s"
        if not step.again:
            return f"it ended with {status}"
        if why := outcomes.refusal(status, phases):
            return why
        return self._again(step, outcomes.failures(phases), prefix)

    def _again(self, step: Step, failed: Mapping[str, outcomes.Phase], prefix: str) -> str:
        why = ""
        for turn in range(1, AGAIN + 1):
            if self.again_left <= 0:
                return f"no time is left to run failed files again; {why or ', '.join(failed)}"
            files = outcomes.files(failed.values())
            say(f"\n=== again ({turn} of {AGAIN}): {' '.join(files)}")
            report = self.folder / f"{step.name}-again-{turn}.jsonl"
            # the project's own interpreter, as make runs it
            command = [
                f"{self.environ.get('VENV', '.venv')}/bin/python",
                "-m",
                "pytest",
                *step.again,
                *files,
            ]
            settings = {**self.environ, REPORT: str(report), "TOOLCRIB_REQUIRE_REAL": "1"}
            began = time.monotonic()
            status = bounded(command, self.again_left, settings, self.over, prefix)
            self.again_left -= time.monotonic() - began
            if status == ENDED:
                return ""
            phases = outcomes.read(report)
            if kept := [t for t, phase in outcomes.failures(phases).items() if phase.guarantee]:
                return f"a guarantee failed, which never runs again: {', '.join(kept)}"
            why = outcomes.still_broken(failed, phases) or (f"it ended with {status}" if status else "")
            if not why:
                self.flaky += [(test, f"{phase.when}: {phase.said}") for test, phase in failed.items()]
                return ""
        return why

    def tables(self) -> None:
        """Where the time went, on standard output."""
        say("\n=== where the time went")
        for name, seconds, verdict in self.took:
            say(f"  {minutes(seconds)}  {name:<16} {verdict}")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        say(
            f"  {minutes(time.monotonic() - self.began)}  all, and {minutes(used.ru_utime + used.ru_stime).strip()} of processor time"
        )
        if self.phases:
            say("\n  tests by folder (seconds of all workers together)")
            for folder, tests, seconds in outcomes.by_folder(self.phases):
                say(f"  {seconds:8.1f} s {tests:6,} tests  {folder}")
            say(f"\n  the slowest {outcomes.SLOWEST}, fixtures included")
            for test, seconds in outcomes.slowest(self.phases):
                say(f"  {seconds:8.1f} s  {test}")

    def tell_flaky(self) -> None:
        """The section FLAKY, where there is something to say."""
        if self.flaky:
            say(
                "\n=== FLAKY: failed once and passed when run again; each is a defect (docs/contributing/ci.md)"
            )
            for test, first in self.flaky:
                say(f"  {test}\n      {first}")


TIMED_OUT = -1000
ENDED = -1001


def bounded(
    command: Sequence[str], seconds: float, environ: Mapping[str, str], over: threading.Event, prefix: str
) -> int:
    """Run a command in a process group of its own; its exit status, or TIMED_OUT or ENDED (`over`) once all of it was ended.

    With a prefix, each line of its output comes with it, whole.
    """
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if prefix else None,
        stderr=subprocess.STDOUT if prefix else None,
        process_group=0,
    )
    told = threading.Thread(target=tell, args=(process.stdout, prefix), daemon=True)
    told.start()
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(POLL, max(until - time.monotonic(), 0)))
            if over.is_set():
                return ENDED
        return TIMED_OUT
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(KILL_AFTER)
        # what outlives the step may hold its output open
        told.join(KILL_AFTER)


def tell(output: IO[bytes] | None, prefix: str) -> None:
    """Print each line of an output with a prefix, as it comes."""
    for line in output or ():
        say(prefix + line.decode(errors="replace").rstrip("\n"))


def shared(steps: Sequence[Step]) -> Iterator[Step]:
    """Each step for whichever thread asks next; a generator would refuse to be asked by two at once."""
    left = list(steps)
    taking = threading.Lock()

    def take() -> Step | None:
        with taking:
            return left.pop(0) if left else None

    return iter(take, None)


def seed_of(environ: Mapping[str, str]) -> int:
    """Of the random cases: given, else from the commit, so that each draws others and a verdict repeats."""
    if given := environ.get("TOOLCRIB_PROOF_SEED"):
        return int(given)
    # git refuses a clone that is somebody else's, and a check may run as another user
    command = ["git", "-c", f"safe.directory={ROOT}", "rev-parse", "--verify", "-q", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return int(commit[:8], 16) if commit else 20261123


def caches(environ: Mapping[str, str]) -> Path:
    """Where this machine keeps what Toolcrib's tools made."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolcrib"


def minutes(seconds: float) -> str:
    """`12 min 03 s`."""
    whole = round(seconds)
    return f"{whole // 60:3} min {whole % 60:02} s"


def say(text: str) -> None:
    """One line of what goes on, at once and whole."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Run the command line; the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seed = seed_of(os.environ)
    every = steps(seed)
    parser = argparse.ArgumentParser(prog=".ci/run", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("steps", nargs="*", metavar="NAME", help=f"of {', '.join(s.name for s in every)}")
    parser.add_argument("--list", action="store_true", help="name the steps and run none")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.steps if name not in {step.name for step in every}]:
        parser.error(f"unknown step {unknown[0]!r}, choose from {', '.join(s.name for s in every)}")
    root = sys.platform == "linux" and os.geteuid() == 0
    chosen = without_repetition(
        [step for step in every if not options.steps or step.name in options.steps], root
    )
    if options.list:
        for step in chosen:
            say(f"{step.name:<16} {step.title}")
        return 0
    say(f"TOOLCRIB_PROOF_SEED={seed}")
    environ = {
        # a fresh clone has no cache of mypy, which compares what files hold: one for all of them
        "MYPY_CACHE_DIR": str(caches(os.environ) / "mypy"),
        **{
            name: value for name, value in os.environ.items() if name != "TOOLCRIB_BEGAN"
        },  # each step tells its own time
        "CI": "true",
        "PYTHONUNBUFFERED": "1",
        "TOOLCRIB_PROOF_SEED": str(seed),
    }
    with tempfile.TemporaryDirectory(prefix="toolcrib-ci-") as folder:
        run = Run(environ, Path(folder))
        threads: list[threading.Thread] = []
        try:
            first, *lanes, either = (
                [step for step in chosen if step.lane == lane] for lane in range(EITHER + 1)
            )
            run.lane(first, beside=False)
            left = shared(either)
            # a lane without steps of its own begins with what is left, if that is enough for it
            abreast = [*filter(None, lanes), *[[] for _ in either]][: len(lanes)]
            threads += [
                threading.Thread(target=run.lane, args=(chain(own, left), len(abreast) > 1), daemon=True)
                for own in abreast
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            run.over.set()
            for thread in threads:
                thread.join(3 * KILL_AFTER)
            say("\ninterrupted")
            return 130
        run.tables()
        run.tell_flaky()
    if run.refused:
        for name, why in run.refused.items():
            say(f"\n=== REFUSED at {name}: {why}")
        return 1
    say("\n=== all green")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
