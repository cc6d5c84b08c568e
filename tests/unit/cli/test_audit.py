"""`toolcrib audit`: what is wrong with a log, what it says, who used what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import decision_logs
from decision_logs import KEY
from toolcrib.audit import anchors as audit_anchors
from toolcrib.audit import chain as audit_chain
from toolcrib.audit.anchors import Anchor
from toolcrib.audit.chain import GENESIS, Head
from toolcrib_cli import decision_logs as logs
from toolcrib_cli import decision_records as records
from toolcrib_cli.errors import CliError
from toolcrib_cli.main import main

pytestmark = pytest.mark.guarantee

CALL = {"issuer": "i", "subject": "system:serviceaccount:team:bot", "tool": "team/calculator", "allowed": True,
        "reason": "granted", "outcome": "ok", "ms": 1.25, "binding": {"ref": "AgentScopeBinding team/bot", "uid": "u", "generation": 3}}  # fmt: skip
DENY = {
    "issuer": "i",
    "subject": "x",
    "client": "crawler",
    "tool": "team/vault",
    "allowed": False,
    "reason": "denied",
}
SUM = {"repeated": {"count": 40, "since": "2027-01-15T08:00:03.000Z", "until": "2027-01-15T08:00:09.000Z"}}
RECORDS: list[tuple[str, dict[str, Any]]] = [
    (audit_chain.BEGIN, {}), ("call", CALL), ("call", DENY), ("call", DENY | SUM),
    (audit_chain.GAP, {"lost": [{"reason": "queue_full", "action": "list", "count": 5, "requests": 5}]}),
    ("list", {"issuer": "i", "subject": "system:serviceaccount:team:bot", "count": 7}), (audit_chain.END, {}),
]  # fmt: skip


def lines_of(replica: str, given: list[tuple[str, dict[str, Any]]] = RECORDS) -> tuple[list[bytes], Head]:
    head, lines = Head(audit_chain.chain_id(replica, 1_800_000_000.0, "aa"), 0, GENESIS), []
    for n, (action, fields) in enumerate(given):
        record = {"ts": f"2027-01-15T08:00:{n:02}.000Z", "replica": replica, "action": action, **fields}
        line, head = audit_chain.sealed(KEY, head, json.dumps(record, separators=(",", ":")).encode())
        lines.append(line)
    return lines, head


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two replicas' logs, one of them rotated; the key; anchors as kubectl prints them."""
    anchors = []
    for replica in ("registry-0", "registry-1"):
        lines, head = lines_of(replica)
        place = tmp_path / "logs" / replica
        place.mkdir(parents=True)
        cut = 3 if replica == "registry-0" else 0
        if cut:
            (place / "decisions.000001.jsonl").write_bytes(b"\n".join(lines[:cut]) + b"\n")
        (place / "decisions.jsonl").write_bytes(b"\n".join(lines[cut:]) + b"\n")
        anchors.append(Anchor(head.chain, head.seq, "2027-01-15T08:01:00.000Z", head.hash))
    decision_logs.key_file(tmp_path)
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {"anchors.json": audit_anchors.write(anchors)},
    }
    (tmp_path / "anchors.json").write_text(json.dumps(manifest, indent=2))
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["audit", *arguments])
    return int(str(ended.value.code))


def verify(folder: Path, *more: str) -> int:
    return run("verify", str(folder / "logs"), "--key-file", str(folder / "audit.key"), *more)


def test_a_whole_log_is_whole_and_what_it_lost_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(folder, "--anchors", str(folder / "anchors.json")) == 0
    told = capsys.readouterr().out
    assert "14 records of 2 replicas in 2 runs, 2027-01-15T08:00:00.000Z to" in told
    assert "10 queue_full" in told
    assert told.endswith("2 anchors\nwhole\n")
    assert verify(folder) == 0
    assert capsys.readouterr().out.endswith("whole, except for possibly truncated ends: see --anchors\n")


def test_only_anchors_of_each_replicas_last_run_make_it_whole(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, lines = folder / "anchors.txt", lines_of("registry-0")[0]
    cut = folder / "logs/registry-0/decisions.jsonl"
    cut.write_bytes(b"\n".join(lines[3:5]) + b"\n")
    for none in ("", '{"v":1,"chains":{}}'):
        path.write_text(none)
        assert verify(folder, "--anchors", str(path)) == 1
        assert capsys.readouterr().out.endswith("not compared with anchors: none were found\n")
    for anchors, whole in (((), True), (("--anchors", str(path)), False)):
        assert verify(folder, *anchors, "-o", "json") == (0 if whole else 1)
        told = json.loads(capsys.readouterr().out)
        assert (told["whole"], told["ends"]) == (whole, "unanchored")
        assert told["unanchored"] == ["registry-0", "registry-1"]
    head = lines_of("registry-1")[1]
    path.write_text(
        audit_anchors.write([Anchor(head.chain, head.seq, "2027-01-15T08:01:00.000Z", head.hash)])
    )
    assert verify(folder, "--anchors", str(path)) == 0
    told_last = capsys.readouterr().out.splitlines()[-1]
    assert (
        told_last
        == "whole, except for possibly truncated ends: no anchor for the last run (in a stream: for every run) of registry-0"
    )
    assert verify(folder, "--anchors", str(path), "-o", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ends"], told["unanchored"]) == ("unanchored", ["registry-0"])
    assert verify(folder, "--anchors", str(path), "--replica", "registry-1", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["ends"] == "anchored"


def test_the_key_beside_a_log_is_taken_and_said_and_the_local_mode_is_not_sent_to_anchors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "decisions.jsonl").write_bytes(b"\n".join(lines_of("r")[0]) + b"\n")
    key = decision_logs.key_file(tmp_path)
    for place, last in (
        ([str(tmp_path)], "whole, except for possibly truncated ends: see --anchors"),
        ([str(tmp_path / "decisions.jsonl")], "whole, except for possibly truncated ends: see --anchors"),
        (["--data", str(tmp_path)], "whole, except for a possibly truncated end: the local mode keeps no anchors"),
    ):  # fmt: skip
        assert run("verify", *place) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[-1] == last
        assert told[-2].startswith(f"key: {key}, beside the log")
    assert run("verify", str(tmp_path), "--key-file", str(key)) == 0
    assert "beside" not in capsys.readouterr().out


def test_without_a_key_a_keyed_log_is_not_called_a_forgery(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "logs/registry-1/decisions.jsonl"
    assert run("verify", str(folder / "logs")) == 2
    told = capsys.readouterr().out
    assert "forgery" not in told
    assert told.endswith("not verified: no key found. Specify --key-file\n")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert run("verify", str(folder / "logs")) == 1
    assert "NOT whole" in capsys.readouterr().out


def test_what_may_be_missing_of_a_run_that_was_killed_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, head = lines_of("r", RECORDS[:3])
    record = {"ts": "2027-01-15T09:00:00.000Z", "replica": "r", "action": audit_chain.BEGIN}
    next_run = Head(audit_chain.chain_id("r", 1_800_003_600.0, "bb"), 0, head.hash)
    lines.append(audit_chain.sealed(KEY, next_run, json.dumps(record, separators=(",", ":")).encode())[0])
    (tmp_path / "decisions.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    decision_logs.key_file(tmp_path)
    assert run("verify", str(tmp_path)) == 0
    (told,) = (line for line in capsys.readouterr().out.splitlines() if "interrupted runs" in line)
    assert told == (
        "interrupted runs: 1. Records of the last moment of each may be missing, "
        "and the counts of requests that were repeated in the last audit.fold_seconds (a minute)"
    )


def test_each_kind_of_harm_is_named_with_its_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "logs/registry-1/decisions.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    anchored = ("--anchors", str(folder / "anchors.json"))
    for harmed, kind, where in (
        ([*whole[:2], whole[2].replace(b"vault", b"other"), *whole[3:]], "altered", f"{path}:3"),
        (whole[:2] + whole[3:], "missing", f"{path}:3"),
        ([*whole[:2], whole[3], whole[2], *whole[4:]], "reordered", f"{path}:4"),
        (whole[:4], "cut_tail", f"{path}:4"),
        (lines_with_another_call(), "rewritten", f"{path}:7"),
        ([*whole, b'{"v":1,"chain":"cut in the mid'], "malformed", f"{path}:8"),
        ([], "missing_replica", "registry-1"),
    ):
        path.write_bytes(b"".join(harmed))
        if not harmed:
            path.unlink()
        assert verify(folder, *anchored, "-o", "json") == 1
        report = json.loads(capsys.readouterr().out)
        assert (where, kind) in [(f["where"], f["kind"]) for f in report["findings"]], report["findings"]
        assert report["whole"] is False
        path.write_bytes(b"".join(whole))
    (folder / "logs/registry-0/decisions.000001.jsonl").unlink()
    assert verify(folder) == 1
    assert "missing_start" in capsys.readouterr().out


def lines_with_another_call() -> list[bytes]:
    """A log that somebody with the key wrote anew."""
    given = [(a, f | {"tool": "team/innocent"} if a == "call" else f) for a, f in RECORDS]
    return [line + b"\n" for line in lines_of("registry-1", given)[0]]


def test_a_wrong_key_no_key_and_no_records_are_failures(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = folder / "other.key"
    other.write_text("o" * 64)
    assert run("verify", str(folder / "logs"), "--key-file", str(other)) == 1
    assert "unknown_key" in capsys.readouterr().out
    empty = folder / "empty.jsonl"
    empty.touch()
    assert run("verify", str(empty)) == 1
    assert "nothing was verified" in capsys.readouterr().out
    assert run("verify", str(empty), "-o", "json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["whole"], told["ends"], told["unanchored"]) == (False, "unanchored", [])
    assert run("verify", str(folder / "nothing")) == 2
    assert run("verify", str(folder / "logs"), "--anchors", str(other)) == 2


@pytest.mark.parametrize(
    "text",
    [
        '{"v":1,"chains":{"registry-0@a":[[1,"2026-01-01T00:00:00","bbb"]]}}',
        '{"v":1,"chains":{"registry-0@a":[[Infinity,"2026-01-01T00:00:00Z","b"]]}}',
        '{"v":1,"chains":' + "[" * 100_000,
        '{"kind": "ConfigMap", "data": [1]}' + "\x00",
        "kind: ConfigMap\nmade: 2026-02-30\n",
        "kind: ConfigMap\ndata: " + "[" * 1200,
    ],
)
def test_anchors_that_are_none_are_said_to_be_none(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    bad = folder / "bad.json"
    bad.write_text(text)
    assert verify(folder, "--anchors", str(bad)) == 2
    assert "holds no anchors of decision logs" in " ".join(capsys.readouterr().err.split())


def test_one_file_brings_its_rotated_ones_and_lines_of_others_may_be_between(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = ("--key-file", str(folder / "audit.key"))
    assert run("verify", str(folder / "logs/registry-0/decisions.jsonl"), *key) == 0
    mixed = folder / "mixed.log"
    own = (folder / "logs/registry-1/decisions.jsonl").read_bytes().splitlines(keepends=True)
    mixed.write_bytes(b"".join(b'{"level":"info"}\n' + line for line in own))
    assert run("verify", str(mixed), *key, "--mixed") == 0
    assert run("verify", str(mixed), *key) == 1
    anchored = ("--anchors", str(folder / "anchors.json"))
    assert run("verify", str(mixed), *key, "--mixed", *anchored, "--replica", "registry-1") == 0
    capsys.readouterr()


def test_tail_shows_one_line_a_record_and_filters(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(folder / "logs/registry-0")
    assert run("tail", place, "-n", "3") == 0
    assert capsys.readouterr().out.splitlines() == [
        "2027-01-15T08:00:04.000Z registry-0 audit.gap 5 list lost: queue_full",
        "2027-01-15T08:00:05.000Z registry-0 team/bot list 7 tools",
        "2027-01-15T08:00:06.000Z registry-0 audit.end ",
    ]
    assert run("tail", place, "--denied", "--agent", "i:*") == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[1]
        .endswith("DENIED denied x40 since 2027-01-15T08:00:03.000Z, summed up later")
    )
    assert (
        run("tail", place, "--tool", "calculator", "--action", "call", "--reason", "granted", "-o", "json")
        == 0
    )
    (only,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert only["binding"]["generation"] == 3


def test_query_says_who_used_what(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("query", str(folder / "logs"), "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["agent"], r["action"], r["tool"], r["allowed"], r["denied"], r["reasons"]) for r in rows] == [
        ("i:x", "call", "team/vault", 0, 82, {"denied": 82}),
        ("team/bot", "call", "team/calculator", 2, 0, {}),
        ("team/bot", "list", "", 2, 0, {}),
    ]
    assert run("query", str(folder / "logs"), "--since", "2027-01-15T08:00:05Z", "--until", "2027-01-16") == 0
    assert capsys.readouterr().out.splitlines()[1].split("\t")[:5] == ["team/bot", "list", "-", "2", "0"]
    assert run("query", str(folder / "logs"), "--records", "--limit", "1", "-o", "json", "--denied") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert run("query", str(folder / "logs"), "--since", "soon") == 2


def test_a_tool_is_meant_by_its_listed_name_and_a_query_without_records_says_what_names_look_like(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {"revision": "1.2", "bindings": [{"namespace": "team", "name": "bot"}]}
    ended = {"revision": "1.3", "ended": ["u"]}
    called = CALL | {"tool": "team/read-file"}
    lines, _ = lines_of(
        "registry-0", [("call", called), ("policy.binding", policy), ("policy.binding", ended)]
    )
    log = tmp_path / "decisions.jsonl"
    log.write_bytes(b"\n".join(lines) + b"\n")

    assert run("query", str(log), "--tool", "read_file") == 0
    assert "team/read-file" in capsys.readouterr().out
    assert run("query", str(log), "--tool", "other") == 0
    assert "namespace/object or its last part" in capsys.readouterr().err
    # they use no tool, so there is nothing to add up: the records themselves
    assert run("query", str(log), "--action", "policy") == 0
    assert [line.split(" policy.binding ")[1] for line in capsys.readouterr().out.splitlines()] == [
        "revision 1.2 binding team/bot",
        "revision 1.3 ended u",
    ]


def test_an_access_review_never_failed_whatever_an_older_log_calls_its_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {
        "issuer": "i",
        "subject": "x",
        "client": "admin",
        "tool": "team/bot",
        "allowed": True,
        "reason": "granted",
    }
    lines, _ = lines_of("r", [
        ("access-review", asked | {"question": "what_can"}), ("access-review", asked | {"outcome": "diff"}),
        ("access-review", asked | {"allowed": False, "reason": "scope_not_granted"}),
        ("call", asked | {"outcome": "limit_exceeded"}),
    ])  # fmt: skip
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert run("query", str(path), "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["action"], r["allowed"], r["denied"], r["failed"], r["reasons"]) for r in rows] == [
        ("access-review", 2, 1, 0, {"scope_not_granted": 1}),
        ("call", 0, 0, 1, {"limit_exceeded": 1}),
    ]
    assert run("tail", str(path), "-n", "99") == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("allowed granted what_can")


BAD = [
    b'{"ts":"x","action":5,"repeated":7}',
    b'{"ts":5,"action":"call"}',
    *(b'{"ts":"x","action":"call",%s}' % part for part in (
        b'"outcome":{}', b'"reason":["a"],"allowed":false', b'"repeated":7', b'"repeated":{"count":"9","since":"x"}',
        b'"repeated":null', b'"repeated":{"count":1}', b'"binding":"b"', b'"binding":{"ref":"b"}', b'"ms":"slow"',
        b'"tool":7', b'"subject":[]', b'"client":{}', b'"phase":1', b'"question":{}', b'"replica":{}', b'"issuer":1',
    )),
    b'{"ts":"x","action":"audit.gap","lost":7}',
    b'{"ts":"x","action":"audit.gap","lost":[5]}',
    b'{"ts":"x","action":"audit.gap","lost":[{"count":1}]}',
    b"[" * 5000,
    b"5",
    b"\xff\xfe",
]  # fmt: skip


def test_lines_that_are_no_records_are_passed_over_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, _ = lines_of("registry-0")
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b"\n".join([*lines[:3], *BAD, *lines[3:]]) + b"\n")
    for command in (
        ("tail", "-n", "99"),
        ("query",),
        ("query", "--records"),
        ("tail", "-n", "99", "-o", "yaml"),
    ):
        assert run(*command, str(path)) == 0, command
        told = capsys.readouterr()
        assert f"skipped {len(BAD)} lines that are not a record" in told.err
        assert "team/calculator" in told.out
    for bad in BAD:
        assert records.parsed(bad) is None, bad


def test_an_unkeyed_log_may_say_anything_of_itself_and_is_still_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, made = Head(audit_chain.chain_id("r", 1_800_000_000.0, "aa"), 0, GENESIS), []
    for action, fields in (
        (audit_chain.GAP, '"lost":7'), (audit_chain.GAP, '"lost":[7,{"count":"x"},{"count":3,"reason":"r"}]'),
        (audit_chain.RETIRED, '"last":{"chain":"c","seq":Infinity,"hash":"h"}'),
        (audit_chain.RETIRED, '"last":' + "[" * 100_000),
    ):  # fmt: skip
        text = f'{{"ts":"2027-01-15T08:00:00.000Z","replica":"r","action":"{action}",{fields}}}'
        line, head = audit_chain.sealed(audit_chain.NO_KEY, head, text.encode())
        made.append(line)
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b"\n".join(made) + b"\n")
    assert run("verify", str(path)) == 0
    assert "lost, according to the log: 3 r" in capsys.readouterr().out


def test_a_pipe_is_no_log_and_waited_for_by_nobody(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "decisions.jsonl")
    command = [sys.executable, "-m", "toolcrib_cli", "audit", "verify", str(pipe)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)  # else it waits for ever
    assert (done.returncode, b"is not a file" in done.stderr) == (2, True)


def test_times_are_moments_dates_or_how_long_ago() -> None:
    now = datetime(2027, 1, 31, 12, tzinfo=UTC)
    assert records.moment("90m", now) == "2027-01-31T10:30:00.000Z"
    assert records.moment("7d", now) == "2027-01-24T12:00:00.000Z"
    assert records.moment("2027-01-31", now) == "2027-01-31T00:00:00.000Z"
    assert records.moment("2027-01-31T08:00:00+02:00", now) == "2027-01-31T06:00:00.000Z"
    for text in (
        "yesterday", "800000d", "99999999999d", f"{10**20}d", "9999999999999999h",
        "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "d", "²d", "",
    ):  # fmt: skip
        with pytest.raises(CliError, match="is not a time"):
            records.moment(text, now)


def test_following_goes_on_in_the_next_file_after_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    lines, _ = lines_of("registry-0")
    path.write_bytes(lines[0] + b"\n")
    seen: list[int] = []
    enough = threading.Event()

    def follow() -> None:
        for record in logs.followed(str(path), records.Filter()):
            seen.append(record["seq"])
            if record["seq"] == 5:
                enough.set()
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not seen:  # what stands there already is not new
        assert time.monotonic() < deadline
        with path.open("ab") as file:
            file.write(lines[1] + b"\n")
        enough.wait(0.05)
    path.rename(tmp_path / "decisions.000001.jsonl")
    path.write_bytes(b"\n".join(lines[2:5]) + b"\n")
    assert enough.wait(60)
    assert [n for n in seen if n != 2] == [3, 4, 5]
    thread.join(5)


def test_a_log_without_end_can_be_piped_away(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "toolcrib_cli",
        "audit",
        "verify",
        "-",
        "--key-file",
        str(folder / "audit.key"),
    ]
    given = (folder / "logs/registry-1/decisions.jsonl").read_bytes()
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
