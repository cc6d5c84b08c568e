"""The steps of continuous integration: what each runs, how long it may take, beside which others.

Standard library only, as `run`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

EITHER = 3
PAIR = "JOBS=2"
"""Processes of a step that has another one beside it: alone it takes more."""


@dataclass(frozen=True)
class Step:
    """One step: a make target with its arguments, how long (s) it may take, and its lane.

    Lane 0 is before all others, alone; 1 and 2 are side by side; steps of EITHER are for the lane that is done first.
    `again` selects the step's tests by options of pytest, for a run of failed files; empty: it never runs again.
    """

    name: str
    title: str
    make: tuple[str, ...]
    seconds: float
    lane: int
    again: tuple[str, ...] = ()


def steps(seed: int) -> tuple[Step, ...]:
    """All steps in their order."""
    cases = f"ARGS=--cases 20000 --seed {seed + 1}"
    return (
        Step("env", "environment", ("env",), 1200, 0),
        # Alone, since it may take two minutes and the lanes leave it a third of the processor. One seed: what a new one
        # finds is work for its finder, and none of the change that is judged here.
        Step(
            "attack",
            "generated attacks on running registries: make attack (the first run builds the real servers)",
            ("attack", "SEED=13", "COUNT=20"),
            5400,
            0,
        ),
        # alone, too: its garbage collections take longer than a loop may be held where neighbours use the caches
        Step(
            "growth",
            "how much longer a change takes to reach an agent with 10,000 tools than with 100: make growth ARGS=--quick",
            ("growth", "ARGS=--quick"),
            900,
            0,
        ),
        Step(
            "health",
            "health while tools are embedded, against an idle registry: make health ARGS=--quick",
            ("health", "ARGS=--quick"),
            600,
            0,
        ),
        Step("check", "lint, format, types, import contracts, generated files", ("check",), 600, 1),
        Step("test", "the README's second line: make test", ("test",), 900, 1, ("--suite", "quick")),
        Step(
            "fresh-machine",
            "both lines of the README on a new Debian, where there is no Go: make fresh-machine-test",
            ("fresh-machine-test", "TOOLCRIB_REQUIRE_REAL=1"),
            2400,
            1,
            ("-m", "fresh"),
        ),
        Step(
            "test-real",
            "tests on real servers, tables and properties whole: make test-real",
            ("test-real", PAIR, "TOOLCRIB_REQUIRE_REAL=1"),
            5400,
            1,
            ("--suite", "real"),
        ),
        Step("search-gate", "search quality: make search-gate", ("search-gate",), 300, 2),
        Step(
            "proof",
            "20,000 random cases against the oracle, others than those of make test",
            ("proof", cases),
            600,
            2,
        ),
        # a variable given to make is one of the programs that it starts
        Step(
            "mcp-conformance",
            "MCP's conformance suite: make mcp-conformance (the first run installs it and the clients)",
            ("mcp-conformance", "TOOLCRIB_REQUIRE_REAL=1"),
            1200,
            2,
        ),
        Step(
            "mcp-peers",
            "MCP clients of others: make mcp-peers",
            ("mcp-peers", PAIR, "TOOLCRIB_REQUIRE_REAL=1"),
            1200,
            2,
            ("-m", "peers"),
        ),
        Step(
            "frameworks",
            "frameworks: make frameworks, the adapters and what changed (the first run installs them)",
            ("frameworks", "ARGS=--changed"),
            1200,
            2,
        ),
        Step(
            "mcp-bench",
            "what MCP costs, by ratios alone: make mcp-bench ARGS=--quick",
            ("mcp-bench", "ARGS=--quick"),
            600,
            2,
        ),
        Step(
            "cluster-test",
            "the chart on a real node: make cluster-test",
            ("cluster-test",),
            4800,
            2,
            ("-m", "node"),
        ),
        # the longest first, so that the lanes end together
        Step(
            "test-long",
            "longer tests: make test-long",
            ("test-long", PAIR),
            2400,
            EITHER,
            ("-m", "long and not node"),
        ),
        Step(
            "openapi-documents",
            "real OpenAPI documents imported, called and searched: make openapi-documents (needs npm, once)",
            ("openapi-documents",),
            600,
            EITHER,
        ),
        Step("wheel", "the built wheel, in a clean environment", ("wheel-smoke",), 900, EITHER),
        Step("cluster-demo", "the cluster demo, which the README shows", ("cluster-demo",), 600, EITHER),
    )


def without_repetition(chosen: Sequence[Step], root: bool) -> list[Step]:
    """Leave `make test` to the fresh machine where that is among the steps, and can be made: as root on Linux."""
    fresh = root and any(step.name == "fresh-machine" for step in chosen)
    return [step for step in chosen if not (fresh and step.name == "test")]
