"""MCP's own conformance suite against `/mcp/direct`, in both revisions that it has requirements for.

    make mcp-conformance                            both revisions
    make mcp-conformance ARGS="--only 2026-07-28"   one; --keep FOLDER keeps the suite's log and each check's result

What may fail is listed in `expected_failures/`, with a reason for each entry; a listed one that passes fails the run,
so the lists only shrink. What must pass is listed here too (`REQUIRED`), and judged by us from the single checks: an
entry in those files cannot hide it, nor can the suite leave it out.
"""

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_peers import environments
from mcp_peers.header_proxy import adding_header
from mcp_peers.suite_tools import ACCOUNT, serving_suite_tools
from realparts import processes

EXPECTED = Path(__file__).parent / "expected_failures"
SECONDS = 300.0

_BOTH = (
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-with-progress",
    "dns-rebinding-protection",
    "server-sse-multiple-streams",
    "json-schema-2020-12",
)
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "2025-11-25": (*_BOTH, "server-initialize", "ping", "logging-set-level"),
    "2026-07-28": (
        *_BOTH,
        "server-stateless",
        "http-header-validation",
        "http-custom-header-server-validation",
        "caching:sep-2549-tools-list-caching-hints",
        "caching:sep-2549-ttl-non-negative",
        "caching:sep-2549-cache-scope-valid",
        *(
            f"input-required-result-{what}"
            for what in (
                "basic-elicitation",
                "basic-sampling",
                "basic-list-roots",
                "request-state",
                "multiple-input-requests",
                "multi-round",
                "missing-input-response",
                "result-type",
                "unsupported-methods",
                "tampered-state",
                "capability-check",
                "ignore-extra-params",
                "validate-input",
            )
        ),
    ),
}
"""Scenarios of each revision, or single checks of them (`scenario:check`), that pass here."""

ON_THE_WIRE = "wire-schema-valid"
"""What every scenario checks besides: each message that we sent fits the revision's schema."""


@dataclass(frozen=True)
class Check:
    """The result of one check of a scenario."""

    id: str
    status: str
    message: str

    @property
    def failed(self) -> bool:
        """A warning is a failure: of something that servers should do."""
        return self.status in ("FAILURE", "WARNING")


def results_in(folder: Path) -> dict[str, list[Check]]:
    """The checks of each scenario, from what the suite has written."""
    found: dict[str, list[Check]] = {}
    for path in sorted(folder.glob("server-*/checks.json")):
        named = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", path.parent.name)
        assert named, path
        read: list[dict[str, Any]] = json.loads(path.read_text())
        found[named[1]] = [
            Check(c["id"], c["status"], c.get("errorMessage") or c.get("description", "")) for c in read
        ]
    return found


def violations(required: Sequence[str], results: Mapping[str, Sequence[Check]]) -> Iterator[str]:
    """What is required and did not pass, a line each."""
    for scenario, checks in results.items():
        yield from (f"{scenario}: {c.id}: {c.message}" for c in checks if c.failed and c.id == ON_THE_WIRE)
    for entry in required:
        scenario, _, single = entry.partition(":")
        judged = [c for c in results.get(scenario, ()) if not single or c.id == single]
        if not any(c.status == "SUCCESS" for c in judged):
            yield f"{entry}: no check of it passed"
        yield from (f"{entry}: {c.id}: {c.message}" for c in judged if c.failed)


def run(revision: str, url: str, folder: Path) -> bool:
    """Run the suite's requirements of one revision, print a line for each scenario; whether all is as it should be."""
    print(
        f"\n=== conformance {revision} of {url} (checks that passed, of all; - where some did not)",
        flush=True,
    )
    folder.mkdir(parents=True)
    log = folder / "suite.log"
    suite = environments.node_modules() / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    expected = EXPECTED / f"{revision}.yaml"
    command = [str(environments.node()), str(suite), "server", "--url", url, "--requirements", revision]
    command += ["--expected-failures", str(expected), "--output-dir", str(folder)]
    with log.open("wb") as output:
        child = processes.spawn(
            command,
            cwd=folder,
            env=processes.clean_environment({"HOME": str(folder)}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            status = child.wait(SECONDS)
        except subprocess.TimeoutExpired:
            print(f"The suite was not done after {SECONDS:g} s.")
            return False
        finally:
            processes.end(child)
    results = results_in(folder)
    for scenario, checks in results.items():
        failed = [c for c in checks if c.failed]
        print(f"  {'-' if failed else 'ok':2} {scenario:46} {len(checks) - len(failed)} of {len(checks)}")
    missed = list(violations(REQUIRED[revision], results))
    for line in missed:
        print(f"REQUIRED, and did not pass: {line}")
    if status:
        # the suite's last lines name what failed unexpectedly, and entries that are out of date
        print(f"The suite ended with {status}:", *_last_lines(log), sep="\n  ")
    return not missed and status == 0


def twice(revision: str, url: str, folder: Path) -> bool:
    """`run`, and once more where it failed: the suite waits 0.5 to 1.5 s for streams, and a busy machine may miss that."""
    if run(revision, url, folder / revision):
        return True
    if not run(revision, url, folder / f"{revision}-again"):
        return False
    print(f"FLAKY: {revision} failed once and passed when run again (docs/contributing/mcp.md)")
    return True


def _last_lines(log: Path) -> list[str]:
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))
    _, _, verdict = text.rpartition("=== SUMMARY ===")
    return [line for line in verdict.splitlines() if line.strip() and not line.startswith(("✓", "✗"))]


def main(arguments: Sequence[str]) -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(
        prog="mcp_peers.conformance", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--only", choices=sorted(REQUIRED), help="one revision")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the suite's output here")
    options = parser.parse_args(arguments)
    try:
        environments.node()
    except environments.PeersMissingError as error:
        skipped = not environments.required()
        print(f"{'skipped: ' if skipped else ''}{error}", file=sys.stderr)
        return 0 if skipped else 1
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="toolcrib-mcp-"))
        )
        registry = stack.enter_context(serving_suite_tools())
        token = registry.token(*ACCOUNT)
        port = stack.enter_context(
            adding_header("Authorization", f"Bearer {token}", int(registry.url.rpartition(":")[2]))
        )
        url = f"http://127.0.0.1:{port}/mcp/direct"
        revisions = [options.only] if options.only else list(REQUIRED)
        good = [twice(revision, url, folder.resolve()) for revision in revisions]
    print("\nconformance: all as expected" if all(good) else "\nconformance: FAILED")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
