"""Decision logs in tests: read whole, verified, and every request accounted for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolcrib.audit import chain as audit_chain
from toolcrib.audit.anchors import Anchor
from toolcrib.audit.chain import AuditKey
from toolcrib.audit.replay import Judged, Replay
from toolcrib.audit.verification import Report, Verification, order

SECRET = "5" * 64
KEY = AuditKey.of(SECRET.encode())


def key_file(folder: Path) -> str:
    """A file with the tests' secret."""
    path = folder / "audit.key"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return str(path)


def files_of(path: Path) -> list[Path]:
    """The files of a log in their order, the rotated ones first."""
    found = sorted(path.parent.glob(f"{path.stem}*{path.suffix}"))
    firsts = [(str(p), p.read_bytes().split(b"\n", 1)[0]) for p in found if p.stat().st_size]
    return [Path(name) for name in order(firsts)]


def records(path: Path) -> list[dict[str, Any]]:
    """What a log holds, without what explains its records."""
    return [r for r in all_records(path) if not audit_chain.is_evidence(r["action"])]


def all_records(path: Path) -> list[dict[str, Any]]:
    """Everything that a log holds."""
    return [json.loads(line) for file in files_of(path) for line in file.read_bytes().splitlines()]


def verify(path: Path, *anchors: Anchor, key: AuditKey = KEY) -> Report:
    """What is wrong with a log."""
    check = Verification([] if key is audit_chain.NO_KEY else [key], anchors)
    for file in files_of(path):
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            check.line(file.name, number, line)
    return check.finish()


def replayed(found: Iterable[dict[str, Any]]) -> list[Judged]:
    """What comes of every decision in these records."""
    replay = Replay()
    return [judged for record in found for judged in replay.take(record)]


def told(judged: Iterable[Judged]) -> Counter[str]:
    """How many are equal, different, or why they are not decided again."""
    return Counter(j.why or ("equal" if j.equal else "different") for j in judged)


def accounted(found: list[dict[str, Any]]) -> Counter[str]:
    """Requests by action: recorded one by one, counted in sums, and counted in gaps."""
    counted: Counter[str] = Counter()
    for record in found:
        if record["action"] == audit_chain.GAP:
            for entry in record["lost"]:
                counted[entry["action"]] += entry["requests"]
        elif (
            record["action"].startswith("audit.")
            or record.get("phase") == "begin"
            or audit_chain.is_evidence(record["action"])
        ):
            continue
        else:
            counted[record["action"]] += record.get("repeated", {}).get("count", 1)
    return counted
