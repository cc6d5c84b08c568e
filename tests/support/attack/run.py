"""`make attack`: every class of attack as generated cases against running registries, and a table of what held.

    python -m attack.run [--seed N] [--count 30] [--only CLASS]…

Prints the seed. A promise that did not hold is printed with the case that shows it and the command that repeats it; the
exit status is 1 then, and where a run of the usual size takes longer than two minutes. The API server is the real one of
`make build-tools`.
"""

import argparse
import json
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attack import (
    arguments,
    assertions,
    bulkheads,
    callers,
    credentials,
    denials,
    egress,
    foreign_bindings,
    lists,
    manifests,
    naming,
    releases,
    servers,
    services,
    slow,
    telling,
)
from attack.stage import Breach, Stage

COUNT = 30
LIMIT = 120.0
"""Seconds in which a run of so many cases ends, on two cores."""


@dataclass(frozen=True)
class Attack:
    """One class: `run` returns how many cases held, or raises the first Breach."""

    name: str
    what: str
    run: Callable[[Stage, random.Random, int], int]
    cluster: bool = False
    """Whether it takes the API server."""


ATTACKS = (
    Attack("arguments", "A arguments and patterns", arguments.attack),
    Attack("names", "B names", naming.attack),
    Attack("denials", "B denied scopes", denials.attack),
    Attack("bindings", "B foreign bindings", foreign_bindings.attack),
    Attack("egress", "C egress", egress.attack),
    Attack("credentials", "C credentials, fixed queries", credentials.attack),
    Attack("assertions", "C call assertions", assertions.attack),
    Attack("callers", "C origins, addresses, keys", callers.attack),
    Attack("telling", "D metrics and lists", telling.attack),
    Attack("manifests", "B hidden text, routes, E quotas", manifests.attack),
    Attack("slow", "E slow clients", slow.attack),
    Attack("lists", "E lists, pages, streams", lists.attack),
    Attack("bulkheads", "E bulkheads", bulkheads.attack),
    Attack("servers", "B spec.server is immutable", servers.attack, cluster=True),
    Attack("releases", "B the revocation finalizer", releases.attack, cluster=True),
    Attack("services", "C Services behind Tools", services.attack, cluster=True),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Attack; 0 where everything held."""
    options = _options(argv)
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}, {options.count} cases a class", flush=True)
    rows, breaches, started = [], 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder)) as stage:
        chosen = [a for a in ATTACKS if not options.only or a.name in options.only]
        if any(attack.cluster for attack in chosen):
            stage.begin()
        for attack in chosen:
            began = time.monotonic()
            try:
                held, outcome = (
                    attack.run(stage, random.Random(f"{seed} {attack.name}"), options.count),
                    "held",
                )
            except Breach as breach:
                held, outcome, breaches = 0, "BREACH", breaches + 1
                again = f'make attack SEED={seed} COUNT={options.count} ARGS="--only {attack.name}"'
                print(f"\nBREACH of {attack.what}: not so: {breach.promise}", flush=True)
                print(
                    json.dumps(breach.case, default=str, indent=1), f"again: {again}\n", sep="\n", flush=True
                )
            rows.append((attack.what, held, outcome, time.monotonic() - began))
            if outcome == "held":
                print(f"{attack.what}: {held} cases held", flush=True)
    print(_table(rows))
    return 1 if breaches or _late(time.monotonic() - started, options.count) else 0


def _late(seconds: float, count: int) -> bool:
    """Whether the run took longer than it may; prints how long all of it took, starts and ends of servers included."""
    late = count <= COUNT and seconds > LIMIT
    verdict = f"longer than the {LIMIT:g} s that it may" if late else f"of at most {LIMIT:g} s"
    print(f"\n{seconds:.0f} s, {verdict}" if late or count <= COUNT else f"\n{seconds:.0f} s")
    return late


def _table(rows: Sequence[tuple[str, int, str, float]]) -> str:
    lines = ["", f"{'class':<36}{'cases':>7}{'':>9}{'seconds':>9}"]
    lines += [
        f"{what:<36}{held or '':>7}{outcome:>9}{seconds:>9.1f}" for what, held, outcome, seconds in rows
    ]
    total = sum(r[1] for r in rows)
    return "\n".join([*lines, f"{'all':<36}{total:>7}{'':>9}{sum(r[3] for r in rows):>9.1f}"])


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make attack", description="Attack running registries with generated cases."
    )
    parser.add_argument("--seed", type=int, help="repeats a run; default: a new one, which is printed")
    parser.add_argument("--count", type=int, default=COUNT, help=f"cases a class (default {COUNT})")
    parser.add_argument(
        "--only", action="append", choices=[a.name for a in ATTACKS], help="only this class; may be repeated"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
