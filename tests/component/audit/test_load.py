"""Under load every request is in the decision log or counted there, refused ones included, also after a kill."""

from __future__ import annotations

import http.client
import json
import random
import signal
import threading
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import decision_logs
from decision_logs import records, verify
from realparts.processes import wait_until
from registry_harness import backend, binding, mint, tool
from registry_process import RegistryProcess, configuration, process
from slow_backend import slow_backend

pytestmark = pytest.mark.guarantee

BOTS = [{"Authorization": f"Bearer {mint(f'system:serviceaccount:team:bot-{i}')}"} for i in range(3)]
STRANGER = {"Authorization": f"Bearer {mint('system:serviceaccount:team:stranger')}"}
FORGED = {"Authorization": "Bearer e30.e30.e30"}
Request = tuple[str, str, dict[str, str], object, int]


def requests(rnd: random.Random, number: int) -> list[tuple[str, int, Request]]:
    """(action, records that it stands for, request with the status that it gets)."""
    found: list[tuple[str, int, Request]] = []
    kinds: list[tuple[str, int, Request]] = []
    for bot in BOTS:
        kinds += [
            ("call", 1, ("POST", "/v1/call", bot, {"tool": "calculator"}, 200)),
            ("call", 1, ("POST", "/tools/calculator", bot, {}, 200)),
            ("call", 1, ("POST", "/v1/call", bot, {"tool": "hidden"}, 403)),
            ("call", 1, ("POST", "/v1/call", bot, {"tool": "lonely"}, 503)),
            ("list", 1, ("GET", "/", bot, None, 200)),
            ("list", 1, ("GET", "/v1/tools", bot, None, 200)),
            ("list", 1, ("GET", "/tools/calculator", bot, None, 200)),
            ("search", 1, ("POST", "/v1/search", bot, {"query": "compute"}, 200)),
            ("describe", 1, ("POST", "/v1/describe", bot, {"tool": "calculator"}, 200)),
            ("load", 2, ("POST", "/v1/load", bot, {"tools": ["calculator", "hidden", "lonely"]}, 200)),
        ]
    kinds += [
        ("call", 1, ("POST", "/v1/call", STRANGER, {"tool": "calculator"}, 403)),
        ("call", 1, ("POST", "/v1/call", FORGED, {"tool": "calculator"}, 401)),
        ("call", 1, ("POST", "/tools/calculator", {}, {}, 401)),
        ("search", 1, ("POST", "/v1/search", {}, {"query": "x"}, 401)),
        ("list", 1, ("GET", "/", {}, None, 200)),
        ("list", 1, ("GET", "/tools/calculator", FORGED, None, 404)),
        ("stats", 1, ("GET", "/stats", STRANGER, None, 200)),
    ]
    while len(found) < number:
        found.append(rnd.choice(kinds))
        if rnd.random() < 0.2:  # one that nobody has tried before
            found.append(("call", 1, ("POST", f"/tools/guess-{len(found)}", rnd.choice(BOTS), {}, 403)))
    return found


def send(running: RegistryProcess, what: list[tuple[str, int, Request]], answered: Counter[str]) -> None:
    """All of them on one connection; what was answered is counted by action."""
    parts = urlsplit(running.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        for action, stands_for, (method, path, headers, body, status) in what:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {**headers, "Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == status, (method, path, answer.status, text)
            answered[action] += stands_for
    except (OSError, http.client.HTTPException):
        return  # killed
    finally:
        connection.close()


def load(
    running: RegistryProcess, workers: int, each: int
) -> tuple[list[threading.Thread], list[Counter[str]]]:
    counts: list[Counter[str]] = [Counter() for _ in range(workers)]
    threads = [
        threading.Thread(target=send, args=(running, requests(random.Random(n), each), counts[n]))
        for n in range(workers)
    ]
    for thread in threads:
        thread.start()
    return threads, counts


def start(running: RegistryProcess, port: int) -> None:
    running.publish(
        tool("calculator", backend=backend(port)),
        tool("hidden", scopes=("secret:use",)),
        tool("lonely", scopes=("calculator:use",)),
        bindings=tuple(binding(f"bot-{i}") for i in range(3)),
    )


def kept(path: Path) -> Counter[str]:
    """The requests that a log accounts for that is being written."""
    return decision_logs.accounted([json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]])


def test_under_load_every_request_is_in_the_log_or_counted_there(tmp_path: Path) -> None:
    path = tmp_path / "log" / "decisions.jsonl"
    audit = {
        "path": str(path),
        "key_file": decision_logs.key_file(tmp_path),
        "max_bytes": 200_000,
        "keep": 100,
    }
    config = configuration(tmp_path / "r", audit={**audit, "fold_seconds": 1.0}, egress={"loopback": True})
    with slow_backend() as slow, process(config) as running:
        slow.answer()
        start(running, slow.port)
        threads, counts = load(running, 4, 800)
        for thread in threads:
            thread.join(120)
        running.child.terminate()
        assert running.child.wait(30) == 0
    sent = sum(counts, Counter())
    found = records(path)
    assert sum(sent.values()) > 3000
    assert decision_logs.accounted(found) == sent
    report = verify(path)
    assert report.findings == ()
    assert len(decision_logs.files_of(path)) > 2
    refused = [r for r in found if r.get("allowed") is False]
    assert len(refused) < sum(sent.values()) / 3  # folded
    assert not any(b"e30.e30.e30" in f.read_bytes() for f in decision_logs.files_of(path))


@pytest.mark.long
def test_after_a_kill_the_log_is_whole_says_so_and_lacks_no_more_than_the_last_moment(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    audit = {"path": str(path), "key_file": decision_logs.key_file(tmp_path), "fold_seconds": 0.2}
    config = configuration(tmp_path / "r", audit=audit, egress={"loopback": True})
    with slow_backend() as slow:
        slow.answer()
        with process(config) as running:
            start(running, slow.port)
            threads, counts = load(running, 3, 100_000)
            wait_until(lambda: sum(map(sum, (c.values() for c in counts))) > 400, 60)
            before = sum(counts, Counter())
            # within a moment all of that is there, whatever comes
            wait_until(lambda: kept(path) >= before)
            running.child.send_signal(signal.SIGKILL)
            running.child.wait(30)
            for thread in threads:
                thread.join(30)
        after = sum(counts, Counter())
        report = verify(path)
        torn = path.read_bytes()[-1:] != b"\n"
        assert [f.kind for f in report.findings] == (["malformed"] if torn else [])
        assert before <= kept(path)
        # at most one request of each connection was recorded and not answered any more
        assert all(number <= after[action] + 3 * len(threads) for action, number in kept(path).items())
        with process(config) as running:
            start(running, slow.port)
            running.child.terminate()
            assert running.child.wait(30) == 0
    report = verify(path)
    assert (report.findings, report.chains, report.interrupted) == ((), 2, 1)
    begins = [r for r in records(path) if r["action"] == "audit.begin"]
    assert begins[1]["clean"] is False
    assert ("recovered" in begins[1]) is torn
