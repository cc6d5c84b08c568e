"""What the decision log does to calls when it cannot be written: nothing (lenient), or it stops them (strict)."""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import decision_logs
from decision_logs import records, verify
from realparts.processes import wait_until
from registry_harness import backend, binding, mint, running_registry, tool
from registry_process import configuration, process
from slow_backend import slow_backend
from small_disk import SmallDisk, command
from toolcrib.audit.anchors import Anchor
from toolcrib.wire.publish import AuditHead

AUTH = {"Authorization": f"Bearer {mint('system:serviceaccount:team:bot')}"}
HTTP = httpx.Client(timeout=30, headers={"connection": "close"})


@contextmanager
def stalled(path: Path) -> Iterator[threading.Event]:
    """A pipe that nobody reads, full: what is written to it waits until the event is set that this gives."""
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    goes_on = threading.Event()

    def read() -> None:
        goes_on.wait()
        os.set_blocking(reader, True)
        while os.read(reader, 65536):  # until the other ends are closed
            pass

    reading = threading.Thread(target=read, daemon=True)
    try:
        with suppress(BlockingIOError):
            while True:
                os.write(writer, b"\n" * 4096)
        reading.start()
        yield goes_on
    finally:
        goes_on.set()
        os.close(writer)
        reading.join(30)
        os.close(reader)


@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_on_a_disk_that_hangs_reads_go_on_and_calls_only_where_the_log_is_lenient(
    mode: str, tmp_path: Path
) -> None:
    audit = {"path": str(tmp_path / "pipe"), "mode": mode, "queue": 50, "strict_seconds": 0.3}
    with stalled(tmp_path / "pipe") as goes_on, slow_backend() as slow:
        slow.answer()
        called = tool("calculator", backend=backend(slow.port))
        with running_registry([called], [binding("bot")], audit=audit) as r:
            headers = r.auth("team", "bot")
            codes, took = [], []
            for _ in range(4):
                codes.append(r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "calculator"}))
            for _ in range(100):
                start = time.monotonic()
                listed = r.http.get(r.url, headers=headers)
                took.append(time.monotonic() - start)
                assert listed.json()["total_available"] == 1
            metrics = r.metrics()
            goes_on.set()
            if mode == "strict":
                wait_until(
                    lambda: (
                        r.http.post(
                            r.url + "/v1/call", headers=headers, json={"tool": "calculator"}
                        ).status_code
                        == 200
                    ),
                    30,
                )
    if mode == "lenient":
        assert [c.status_code for c in codes] == [200] * 4
    else:
        assert [(c.status_code, c.json()["code"]) for c in codes] == [(503, "audit_unavailable")] * 4
        assert codes[0].headers["retry-after"] == "5"
        assert len(slow.began.queue) == 1  # the one after the pipe was read; none of the refused ones
    assert statistics.median(took) < 0.3
    assert max(took) < 5.0, "one that waits for the log waits for ever"
    lost = next(
        x for x in metrics.splitlines() if x.startswith("toolcrib_decision_log_dropped_records_total ")
    )
    assert float(lost.split()[1]) > 20


def test_a_strict_call_is_on_the_disk_before_it_is_made(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    audit = {"path": str(path), "mode": "strict", "key_file": decision_logs.key_file(tmp_path)}
    with slow_backend() as slow:
        called = tool("calculator", backend=backend(slow.port))
        with running_registry([called], [binding("bot")], audit=audit) as r:
            asking = threading.Thread(
                target=lambda: r.http.post(
                    r.url + "/v1/call",
                    headers=r.auth("team", "bot"),
                    json={"tool": "calculator", "arguments": {}},
                )
            )
            asking.start()
            slow.began.get(timeout=30)
            (begun,) = [x for x in records(path) if x["action"] == "call"]
            slow.answer()
            asking.join(30)
    begin, end = [x for x in records(path) if x["action"] == "call"]
    assert begun == begin
    assert (begin["phase"], end["phase"], end["outcome"]) == ("begin", "end", "ok")
    assert begin["request_id"] == end["request_id"]
    assert begin["arguments_hash"] == end["arguments_hash"]
    assert verify(path).findings == ()


@pytest.mark.real
@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_on_a_full_disk_no_record_is_lost_uncounted_and_strict_calls_wait_for_space(
    mode: str, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    key = decision_logs.key_file(tmp_path)
    audit = {
        "path": str(disk / "decisions.jsonl"),
        "mode": mode,
        "queue": 30,
        "strict_seconds": 1.0,
        "key_file": key,
    }
    config = configuration(tmp_path / "r", audit=audit, egress={"loopback": True})
    with slow_backend() as slow, process(config, within=command(disk, "256k")) as running:
        slow.answer()
        small = SmallDisk(running.child.pid, disk)
        running.publish(tool("calculator", backend=backend(slow.port)), bindings=(binding("bot"),))
        body = {"tool": "calculator"}
        sent = {"call": 0, "list": 0}

        def call() -> httpx.Response:
            sent["call"] += 1
            return HTTP.post(f"{running.url}/v1/call", headers=AUTH, json=body)

        wait_until(lambda: call().status_code == 200)
        small.fill()
        answers = [call() for _ in range(3)]
        while mode == "strict" and len(answers) < 12 and any(a.is_success for a in answers[-2:]):
            answers.append(call())  # the file's last page may have room for a few more
        for _ in range(60):
            sent["list"] += 1
            assert HTTP.get(f"{running.url}/", headers=AUTH).json()["total_available"] == 1
        small.free()
        wait_until(lambda: call().status_code == 200)
        log = (small.folder / "decisions.jsonl").open("rb")  # held: the disk goes with the process
        running.child.terminate()
        assert running.child.wait(30) == 0
        kept = tmp_path / "kept.jsonl"
        with log:
            kept.write_bytes(log.read())
    if mode == "lenient":
        assert [a.status_code for a in answers] == [200] * 3
    else:
        assert [a.json().get("code") for a in answers[-2:]] == ["audit_unavailable"] * 2
    found = records(kept)
    assert verify(kept).findings == ()
    assert [r for r in found if r["action"] == "audit.gap"]
    assert decision_logs.accounted(found) == sent


def test_the_operator_is_told_the_end_of_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    audit = {"path": str(path), "key_file": decision_logs.key_file(tmp_path)}
    with running_registry([tool("calculator")], [binding("bot")], audit=audit) as r:
        r.http.get(r.url, headers=r.auth("team", "bot"))

        def told() -> dict[str, Any]:
            return dict(r.heartbeat().json().get("audit") or {})

        wait_until(lambda: [r["seq"] for r in records(path)][1:] == [told().get("seq")])
        head = AuditHead.model_validate(told())
    assert verify(path, Anchor(head.chain, head.seq, "t", head.hash)).findings == ()
    assert records(path)[1]["hash"] == head.hash


def test_strict_needs_somewhere_to_write(tmp_path: Path) -> None:
    from toolcrib.errors import SettingsInvalid
    from toolcrib_registry.settings import RegistrySettings, from_env

    with pytest.raises(SettingsInvalid, match="audit: mode strict needs a path"):
        from_env({"TOOLCRIB_AUDIT__MODE": "strict"})
    for older in ({"TOOLCRIB_DECISION_LOG": "/x/d.jsonl"}, {"TOOLCRIB_AUDIT": "/x/d.jsonl"}):
        assert from_env(older).audit.path == "/x/d.jsonl"
    file = tmp_path / "r.yaml"
    file.write_text(json.dumps({"decision_log": "/x", "audit": {"path": "/y"}}))
    with pytest.raises(SettingsInvalid, match="old name"):
        from_env({}, str(file))
    settings: dict[str, Any] = {"decision_log": "/x"}
    assert RegistrySettings(**settings).audit.path == "/x"
