"""The decision log on disk: rotated, deleted when there are too many files, continued after any end."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

import decision_logs
from decision_logs import KEY, records, verify
from realparts.processes import wait_until
from registry_harness import ManualClock
from toolcrib.audit.anchors import Anchor
from toolcrib.authorizer import Action, Decision, Reason
from toolcrib.identity import Identity
from toolcrib_registry.audit import setup
from toolcrib_registry.audit.files import LogBusy, RotatingFile, Stream, rotated
from toolcrib_registry.audit.keys import KeyFileError
from toolcrib_registry.audit.log import DecisionLog, OtherAction
from toolcrib_registry.settings_sections import Audit

pytestmark = pytest.mark.guarantee

BOT = Identity("https://issuer.test", "system:serviceaccount:team:bot", 4e9, cluster=True)
GRANTED = Decision(True, Reason.GRANTED)
REFUSED = Decision(False, Reason.NO_BINDING)


class Counts:
    """Counts in memory."""

    def __init__(self) -> None:
        self.records = self.lost_records = self.failures = 0
        self._lock = threading.Lock()

    def written(self, records: int, seq: int) -> None:
        with self._lock:
            self.records += records

    def lost(self, records: int) -> None:
        with self._lock:
            self.lost_records += records

    def failed(self) -> None:
        with self._lock:
            self.failures += 1


@contextmanager
def opened(path: Path, counts: Counts | None = None, **settings: Any) -> Iterator[DecisionLog]:
    """A log with the tests' key, closed at the end."""
    given = {"path": str(path), "key_file": decision_logs.key_file(path.parent), **settings}
    log = setup.opened(Audit(**given), "registry-0", ManualClock(1_800_000_000.0), counts or Counts())
    try:
        yield log
    finally:
        log.close()


def call(log: DecisionLog, n: int, **given: Any) -> None:
    log.decided(
        Action.CALL, BOT, "t", None, GRANTED, "1.1", outcome="ok", arguments={"n": n}, seconds=0.01, **given
    )


def wait_written(counts: Counts, records: int) -> None:
    wait_until(lambda: counts.records >= records)


def test_a_call_is_recorded_with_identity_latency_and_its_arguments_as_a_keyed_hash(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with opened(path) as log:
        call(log, 7)
    begin, called, end = records(path)
    assert (begin["action"], begin["mode"], begin["previous"]) == ("audit.begin", "lenient", None)
    assert (called["replica"], called["issuer"], called["subject"]) == ("registry-0", BOT.issuer, BOT.subject)
    assert called["ms"] == 10.0
    assert called["arguments_hash"] == KEY.arguments(b'{"n":7}')
    assert called["ts"] == "2027-01-15T08:00:00.000Z"
    assert end["action"] == "audit.end"
    assert verify(path).findings == ()


@pytest.mark.parametrize(
    ("arguments", "key", "shown"),
    [("omit", True, {}), ("plain", True, {"arguments": {"n": 7}}), ("hash", False, {})],
)
def test_arguments_are_shown_as_the_settings_say(
    arguments: str, key: bool, shown: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "decisions.jsonl"
    with opened(path, arguments=arguments, **({} if key else {"key_file": None})) as log:
        call(log, 7)
    called = records(path)[1]
    assert {k: v for k, v in called.items() if k.startswith("arguments")} == shown


@pytest.mark.parametrize("key", [True, False])
def test_plain_arguments_beyond_four_kibibytes_are_a_hash_and_a_size(key: bool, tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    texts = ["x" * (4096 - len('{"n":""}')), "x" * 4096]
    with opened(path, arguments="plain", **({} if key else {"key_file": None})) as log:
        for text in texts:
            log.decided(Action.CALL, BOT, "t", None, GRANTED, "1.1", outcome="ok", arguments={"n": text})
    within, beyond = ({k: v for k, v in r.items() if k.startswith("arguments")} for r in records(path)[1:3])
    assert within == {"arguments": {"n": texts[0]}}
    size = len(texts[1]) + len('{"n":""}')
    hashed = {"arguments_hash": KEY.arguments(b'{"n":"%s"}' % texts[1].encode())} if key else {}
    assert beyond == {"arguments_bytes": size, **hashed}


def test_an_access_review_is_recorded_with_its_question_and_no_outcome(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with opened(path) as log:
        log.decided(OtherAction.ACCESS_REVIEW, BOT, "team/bot", None, GRANTED, "1.1", question="what_can")
        call(log, 1)
    reviewed, called = records(path)[1:3]
    assert (reviewed["question"], "outcome" in reviewed) == ("what_can", False)
    assert "question" not in called


def test_a_log_that_others_could_read_is_its_owners_alone_once_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.touch()
    path.chmod(0o644)
    with opened(path) as log:
        call(log, 1)
        assert path.stat().st_mode & 0o777 == 0o600


def test_after_a_rotation_the_folder_is_on_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the machine's end could take the new name with it."""
    synced: list[tuple[int, list[str]]] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, sorted(os.listdir(tmp_path))))
        real(handle)

    target = RotatingFile(tmp_path / "decisions.jsonl", 10, 3)
    monkeypatch.setattr(os, "fsync", fsync)
    target.rotate()
    target.close()
    assert synced == [(tmp_path.stat().st_ino, ["decisions.000001.jsonl", "decisions.jsonl"])]


def test_names_that_mean_nothing_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with opened(path) as log:
        log.decided(Action.CALL, BOT, "n" * 400, None, REFUSED, "1.1")
        log.refused(Action.CALL, "ambiguous_name", BOT, "m" * 400)
    assert [r["tool"] for r in records(path)[1:3]] == ["n" * 128, "m" * 128]


def test_a_full_file_is_closed_the_chain_goes_on_and_the_oldest_file_is_deleted_on_the_record(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log" / "decisions.jsonl"
    path.parent.mkdir()
    counts = Counts()
    with opened(path, counts, max_bytes=4096, keep=3) as log:
        for n in range(0, 200, 10):
            for i in range(10):
                call(log, n + i)
            wait_written(counts, n + 10)
    files = decision_logs.files_of(path)
    assert [f.name for f in files][-1] == "decisions.jsonl"
    assert len(files) == 4
    assert max(f.stat().st_size for f in files) < 4096 + 128 * 600
    report = verify(path)
    assert report.findings == ()
    found = records(path)
    numbers = [r["seq"] for r in found]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    retired = [r for r in found if r["action"] == "audit.retired"]
    assert retired[-1]["last"]["seq"] == numbers[0] - 1
    assert all(f.stat().st_mode & 0o777 == 0o600 for f in files)

    files[1].unlink()
    assert [f.kind for f in verify(path).findings] == ["missing"]
    files[0].unlink()
    assert [f.kind for f in verify(path).findings] == ["missing_start"]


def test_a_new_process_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    for _ in range(3):
        with opened(path) as log:
            call(log, 1)
    report = verify(path)
    assert (report.findings, report.chains, report.interrupted) == ((), 3, 0)
    begins = [r for r in records(path) if r["action"] == "audit.begin"]
    assert [b["clean"] for b in begins] == [True, True, True]
    assert begins[1]["previous"]["seq"] == 3


def test_half_a_line_is_cut_away_and_said_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with opened(path) as log:
        for n in range(3):
            call(log, n)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:100])
    with opened(path) as log:
        call(log, 9)
    begin = next(r for r in records(path)[1:] if r["action"] == "audit.begin")
    assert (begin["clean"], begin["recovered"]["bytes"], begin["previous"]["seq"]) == (False, 100, 3)
    report = verify(path)
    assert (report.findings, report.interrupted) == ((), 1)


def test_an_altered_last_line_is_left_where_it_is_and_found(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with opened(path) as log:
        call(log, 1)
    path.write_bytes(path.read_bytes().replace(b'"action":"audit.end"', b'"action":"audit.fine"'))
    with opened(path) as log:
        call(log, 2)
    assert "altered" in {f.kind for f in verify(path).findings}


def test_a_file_that_is_moved_away_is_recreated_and_the_chain_continues(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    counts = Counts()
    with opened(path, counts) as log:
        call(log, 1)
        wait_written(counts, 2)
        path.rename(tmp_path / "decisions.jsonl-20270115.jsonl")
        wait_until(path.exists)
        call(log, 2)
    report = verify(path)
    assert report.findings == ()
    assert "audit.reopened" in [r["action"] for r in records(path)]
    assert len(decision_logs.files_of(path)) == 2


def test_two_processes_never_write_one_log(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with opened(path), pytest.raises(LogBusy), opened(path):
        pass
    with opened(path):
        pass


@pytest.mark.parametrize(
    ("secret", "mode", "words"), [("x" * 64, 0o604, "chmod 600"), ("short", 0o600, "32 bytes")]
)
def test_a_key_that_others_can_read_or_guess_is_refused_and_not_shown(
    secret: str, mode: int, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(secret)
    file.chmod(mode)
    with pytest.raises(KeyFileError, match=words) as caught, opened(tmp_path / "d.jsonl", key_file=str(file)):
        pass
    assert secret not in str(caught.value)


def test_a_pipe_that_nobody_reads_is_an_error_at_once_and_one_that_is_read_waits_for_its_reader(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    # in a thread: what opens a pipe the plain way waits for ever
    with ThreadPoolExecutor(1) as pool:
        opening_it = pool.submit(Stream, str(path))
        try:
            with pytest.raises(
                OSError,
                match="no process reads this decision log",
            ) as caught:
                opening_it.result(30)
            assert caught.value.filename == str(path)
        finally:
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    stream = Stream(str(path))
    size = fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ) + 1
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(stream.append, b"x" * size)
        os.set_blocking(reader, True)
        got = 0
        while got < size:
            got += len(os.read(reader, 65536))
        writing.result(30)
    stream.close()
    os.close(reader)


@pytest.mark.parametrize("name", ["de[c]isions.jsonl", "[a-z]*?.jsonl", "decisions.[1]"])
def test_signs_of_a_pattern_in_a_logs_name_cost_no_file(tmp_path: Path, name: str) -> None:
    path, counts = tmp_path / name, Counts()
    with opened(path, counts, max_bytes=4096, keep=3) as log:
        for n in range(0, 100, 10):
            for i in range(10):
                call(log, n + i)
            wait_written(counts, n + 10)
    files = [*rotated(path), path]
    assert len(files) == 4
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    numbers = [orjson.loads(line)["seq"] for line in lines]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_a_rotated_file_never_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    file = RotatingFile(path, 10, 3)
    taken = tmp_path / "decisions.000001.jsonl"
    taken.mkdir()  # even of what is no file
    file.append(b"one\n")
    first = file.rotate()
    file.append(b"two\n")
    second = file.rotate()
    file.close()
    assert [(f.name, f.read_bytes()) for f in (first, second)] == [
        ("decisions.000002.jsonl", b"one\n"), ("decisions.000003.jsonl", b"two\n")
    ]  # fmt: skip


def test_a_disk_that_hangs_loses_only_what_is_counted_in_the_chain(tmp_path: Path) -> None:
    path, counts, total = tmp_path / "pipe", Counts(), 2000
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with opened(path, counts, queue=10) as log:
        for n in range(total):  # nobody reads: the pipe is full after some hundreds
            call(log, n)
        os.set_blocking(reader, True)
        got: list[bytes] = []

        def read() -> None:
            with open(reader, "rb") as pipe:
                got.extend(pipe)

        reading = threading.Thread(target=read)
        reading.start()
    reading.join(30)
    found = [orjson.loads(line) for line in got]
    gaps = [entry for r in found if r["action"] == "audit.gap" for entry in r["lost"]]
    assert counts.lost_records == sum(g["count"] for g in gaps) > total // 2
    assert {(g["reason"], g["action"]) for g in gaps} == {("queue_full", "call")}
    assert decision_logs.accounted(found)["call"] == total
    log_file = tmp_path / "read.jsonl"
    log_file.write_bytes(b"".join(got))
    assert verify(log_file).findings == ()
    assert verify(log_file).lost == {"queue_full": counts.lost_records}


def test_a_flood_of_refusals_writes_few_bytes_and_every_one_is_counted(tmp_path: Path) -> None:
    path, total = tmp_path / "decisions.jsonl", 60_000
    others = [Identity("https://issuer.test", f"stranger-{i}", 4e9) for i in range(20)]
    with opened(path) as log:
        call(log, 1)  # the evidence that the flood is meant to push out
        for n in range(total):
            who = others[n % 20]
            if n % 3 == 0:  # one tool after the other, by somebody with an identity
                log.decided(Action.CALL, who, f"tool-{n}-{'x' * 400}", None, REFUSED, "1.1")
            elif n % 3 == 1:  # the same again and again
                log.decided(Action.DESCRIBE, who, "team/secret", None, REFUSED, "1.1")
            else:  # and by nobody
                log.refused(Action.CALL, "no_identity")
    found = records(path)
    counted = decision_logs.accounted(found)
    assert counted == {"call": 1 + total // 3 * 2, "describe": total // 3}
    assert path.stat().st_size < 3_000_000
    assert found[1]["outcome"] == "ok"
    first = next(r for r in found if r["action"] == "describe")
    assert "repeated" not in first
    summed = next(r for r in found if r["action"] == "describe" and "repeated" in r)
    assert summed["repeated"]["count"] > 900
    assert len([r for r in found if r.get("reason") == "no_identity"]) == 2
    assert verify(path).findings == ()


def test_refusals_continue_as_one_sum_an_interval_and_start_over_after_a_quiet_one(tmp_path: Path) -> None:
    path, clock = tmp_path / "decisions.jsonl", ManualClock(1_800_000_000.0)
    settings = Audit(path=str(path), fold_seconds=60)
    counts = Counts()
    log = setup.opened(settings, "r", clock, counts)
    seen = 1

    def told(more: int) -> None:
        nonlocal seen
        seen += more
        wait_written(counts, seen)

    for _ in range(3):
        log.decided(Action.CALL, BOT, "x", None, REFUSED, "1.1")
    told(1)
    clock.advance(61)
    told(1)
    for _ in range(2):
        log.decided(Action.CALL, BOT, "x", None, REFUSED, "1.1")
    clock.advance(61)
    told(1)
    clock.advance(61)
    log.due()
    log.decided(Action.CALL, BOT, "x", None, REFUSED, "1.1")
    told(1)
    log.close()
    counts = [r.get("repeated", {}).get("count", 1) for r in records(path) if r["action"] == "call"]
    assert counts == [1, 2, 2, 1]


def test_lists_of_one_caller_in_a_loop_are_counted_beyond_some_hundreds_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with opened(path) as log:
        for _ in range(5000):
            log.decided(Action.LOAD, BOT, "t", None, GRANTED, "1.1", outcome="ok")
    found = [r for r in records(path) if r["action"] == "load"]
    assert len(found) == 601
    assert decision_logs.accounted(found)["load"] == 5000


def test_the_head_is_that_of_the_last_record_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with opened(path) as log:
        call(log, 1)
        wait_until(lambda: log.head is not None and log.head.seq == 2)
        head = log.head
    assert head is not None
    (line,) = [r for r in records(path) if r["seq"] == 2]
    assert (head.chain, head.hash) == (line["chain"], line["hash"])
    assert verify(path, Anchor(head.chain, head.seq, "t", head.hash)).findings == ()
    (found,) = verify(path, Anchor(head.chain, 99, "t", head.hash)).findings
    assert (found.kind, "seq 99" in found.message) == ("cut_tail", True)
