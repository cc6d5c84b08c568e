"""Sessions over the local mode as a process: agents in turns, each as itself, whatever ends in the middle."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import model_stub
from local_mode import HEIST, LocalMode
from manifests import binding, tool
from realparts.postgres_server import Postgres
from realparts.processes import Child, end, spawn, wait_until
from realparts.required import require_postgres
from slow_backend import SlowBackend, slow_backend
from stub_server import Answer, answering

IDEMPOTENT = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False}
ONCE = IDEMPOTENT | {"idempotentHint": False}


@pytest.fixture(scope="module")
def backend() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        running.answer()
        yield running


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, backend: SlowBackend) -> Iterator[LocalMode]:
    folder = tmp_path_factory.mktemp("sessions")
    (more := folder / "more").mkdir()
    objects = [
        tool("drill", inputSchema={"type": "object"}, annotations=ONCE, backend=_at("drill")),
        tool("listen", inputSchema={"type": "object"}, annotations=IDEMPOTENT, backend=_at("listen")),
        binding("crew", ["drill:use", "listen:use"]),
    ]
    (more / "all.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    extra = ("--backend", f"heist/slow=127.0.0.1:{backend.port}")
    with LocalMode(folder, HEIST, more, extra=extra) as running:
        yield running


def _at(name: str) -> dict[str, Any]:
    place = {"service": {"name": "slow", "port": 80}, "path": f"/{name}", "method": "POST", "timeout": "60s"}
    return {"http": place}


def session(local: LocalMode, *arguments: str) -> subprocess.CompletedProcess[str]:
    return local.toolcrib("session", *arguments)


def shown(local: LocalMode, ident: str) -> dict[str, Any]:
    done = session(local, "show", ident, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def written(folder: Path, *agents: dict[str, Any], **facts: Any) -> str:
    """A session's file."""
    needs, model = facts.pop("needs", {}), facts.pop("model", {})
    body = {"session": {"name": "test"} | facts, "needs": needs, "model": model, "agents": list(agents)}
    (file := folder / "session.json").write_text(json.dumps(body))
    return str(file)


def crew(prompt: str, name: str = "crew", **fields: Any) -> dict[str, Any]:
    return {"name": name, "account": "heist/crew", "prompt": prompt} | fields


def started(local: LocalMode, *arguments: str) -> Child:
    environ = {**os.environ, "TOOLCRIB_DATA": str(local.data), "TOOLCRIB_URL": local.url}
    child = Child(
        "toolcrib session",
        [sys.executable, "-m", "toolcrib_cli", "session", *arguments],
        log=local.data.parent / "session.log",
        env=environ,
    )
    child.start()
    return child


def records(local: LocalMode) -> list[dict[str, Any]]:
    lines = (local.data / "decisions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_heist_runs_by_one_command_and_each_agent_has_what_the_registry_says(local: LocalMode) -> None:
    done = session(local, "run", str(HEIST / "session.yaml"), "--id", "vault", "--data", str(local.data))
    assert done.returncode == 0, done.stderr
    assert "It is no language model." in done.stdout
    found = shown(local, "vault")
    assert [(t["agent"], t["outcome"]) for t in found["turns"]] == [
        ("planner", "answered"), ("hacker", "answered"), ("safecracker", "answered"),
    ] * 2  # fmt: skip
    for view in found["views"]:
        listed = session_tools(local, view["account"])
        assert view["tools"] == listed
        said = ", ".join(f"{name} ({' '.join(scopes)})" for name, scopes in listed.items()) or "no tools"
        assert f"{view['agent']} as {view['account']}: {said}" in done.stdout
    assert {c["tool"] for c in found["calls"] if c["agent"] == "safecracker"} == {"calculator"}
    assert all(c["outcome"] == "ok" for c in found["calls"])

    claimed = {
        (r["subject"].rpartition(":")[2], r["session"])
        for r in records(local)
        if r.get("session", "").startswith("vault/")
    }
    assert {("safecracker", "vault/3"), ("safecracker", "vault/6")} <= claimed
    assert ("hacker", "vault/3") not in claimed


def session_tools(local: LocalMode, account: str) -> dict[str, list[str]]:
    done = local.toolcrib("tools", "--as", account, "-o", "json")
    return {each["name"]: each["scopes"] for each in json.loads(done.stdout)}


@pytest.mark.slow
def test_what_came_of_sessions_is_listed_compared_exported_and_counted_over_sessions(
    local: LocalMode, tmp_path: Path
) -> None:
    file = written(tmp_path, crew("call listen {}"), name="counted")
    for ident in ("counted-1", "counted-2"):
        assert session(local, "run", file, "--id", ident).returncode == 0
    assert [
        line.split("\t")[:5] for line in session(local, "list", "--name", "counted").stdout.splitlines()[1:]
    ] == [[ident, "finished", "1/1", "0", "1"] for ident in ("counted-2", "counted-1")]
    (row,) = json.loads(session(local, "compare", "--name", "counted", "-o", "json").stdout)
    assert (row["sessions"], row["tools"], row["calls"]["value"]) == (2, ["drill", "listen"], 1)
    assert (row["succeeded"]["hits"], row["succeeded"]["of"], row["answered"]["of"]) == (2, 2, 2)
    lines = [json.loads(line) for line in session(local, "export", "counted-1").stdout.splitlines()]
    assert Counter(line["type"] for line in lines) == {"session": 1, "view": 1, "turn": 1, "call": 1}
    tools = json.loads(session(local, "tools", "counted-1", "-o", "json").stdout)
    listen = next(each for each in tools if each["tool"] == "listen")
    assert (listen["calls"], listen["scopes"]) == (1, ["listen:use"])
    assert listen["ever"] >= 2
    top = session(local, "top", "--once").stdout
    assert "counted-1\tfinished\tcrew\t1\t1\t0\t0\t0" in top


def test_what_agents_write_is_in_the_store_only_where_the_session_keeps_it(
    local: LocalMode, tmp_path: Path
) -> None:
    secret = "the-combination-is-31-07"
    with model_stub.serving([model_stub.text(secret)]) as model:
        for ident, messages in (("silent", "discard"), ("kept", "keep")):
            file = written(
                tmp_path, crew("Say it."), model={"url": model.url, "name": "m"}, messages=messages
            )
            done = session(local, "run", file, "--id", ident)
            assert done.returncode == 0, done.stderr
            held = b"".join(f.read_bytes() for f in local.data.glob("sessions.sqlite*"))
            assert (secret.encode() in held) is (messages == "keep")
    assert shown(local, "silent")["turns"][0]["answer"] is None
    assert shown(local, "kept")["turns"][0]["answer"] == secret


def test_what_others_said_reaches_the_next_turn_as_quoted_words(local: LocalMode, tmp_path: Path) -> None:
    with model_stub.serving([model_stub.text("one\ntwo")]) as model:
        file = written(
            tmp_path, crew("Speak.", "first"), crew("Go on.", "second"), model={"url": model.url, "name": "m"}
        )
        assert session(local, "run", file, "--id", "quoted-2").returncode == 0
        asked = [m["content"] for m in model.requests[-1]["messages"]]
    assert "> first: one\n> two" in asked[-1]
    assert "first: one" not in asked[0]


def test_a_turn_that_fails_is_recorded_and_the_session_goes_on(local: LocalMode, tmp_path: Path) -> None:
    with answering(lambda asked: Answer(b'{"error": {"message": "no such model"}}', 404)) as port:
        broken = {"url": f"http://127.0.0.1:{port}/v1", "name": "gone"}
        agents = (crew("Try.", "first", model=broken), crew("call listen {}", "second"))
        file = written(tmp_path, *agents, messages="keep")
        done = session(local, "run", file, "--id", "goes-on")
    assert done.returncode == 0, done.stderr
    assert "2 turns, 1 of them without an answer" in done.stdout
    first, second = shown(local, "goes-on")["turns"]
    assert (first["outcome"], "no such model" in first["error"]) == ("model_failed", True)
    assert second["outcome"] == "answered"


def test_an_agent_that_never_ends_is_ended_by_its_bounds(local: LocalMode, tmp_path: Path) -> None:
    numbers = iter(range(1_000_000))

    def say(request: dict[str, Any]) -> dict[str, Any]:
        return model_stub.function("listen", {"n": next(numbers)})

    bounds = {"replies": 5, "tokens": 500, "seconds": 0.5}
    with model_stub.serving(say) as model:
        endless = {"model": {"url": model.url, "name": "m"}}
        agents = [
            crew("Go on for ever.", name, bounds={"replies": 1000} | {name: most}, **endless)
            for name, most in bounds.items()
        ]
        file = written(tmp_path, *agents, crew("call listen {}", "last"))
        assert session(local, "run", file, "--id", "endless").returncode == 0
    turns = shown(local, "endless")["turns"]
    assert [turn["outcome"] for turn in turns] == ["out_of_turns", "out_of_tokens", "out_of_time", "answered"]
    assert turns[0]["replies"] == 5


def test_an_answer_of_a_megabyte_is_kept_in_part_and_told_in_part(local: LocalMode, tmp_path: Path) -> None:
    with model_stub.serving([model_stub.text("a" * 1_000_000)]) as model:
        agents = (crew("Speak.", "first"), crew("Go on.", "second"))
        file = written(tmp_path, *agents, model={"url": model.url, "name": "m"}, messages="keep")
        done = session(local, "run", file, "--id", "long")
        assert done.returncode == 0, done.stderr
        assert len(model.requests[-1]["messages"][-1]["content"]) < 6_000
    assert len(done.stdout) < 6_000
    assert len(shown(local, "long")["turns"][0]["answer"]) == 256 * 1024


def test_a_session_whose_retention_is_over_is_shown_no_more_but_its_uses_count(
    local: LocalMode, tmp_path: Path
) -> None:
    file = written(tmp_path, crew("call listen {}"), retention="1ms", name="brief")
    assert session(local, "run", file, "--id", "brief").returncode == 0
    assert session(local, "list", "--name", "brief").stdout.splitlines()[1:] == []
    assert "no session is called brief" in session(local, "show", "brief").stderr
    again = session(local, "run", file, "--id", "brief")
    assert again.returncode == 2
    assert "there was a session brief, and its retention is over" in again.stderr


def test_an_export_to_a_file_is_its_owners_alone(local: LocalMode, tmp_path: Path) -> None:
    assert session(local, "run", written(tmp_path, crew("x")), "--id", "exported").returncode == 0
    assert session(local, "export", "exported", "--to", str(tmp_path / "out.jsonl")).returncode == 0
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["id"] == "exported"


def test_of_two_runs_with_one_id_at_once_one_begins(local: LocalMode, tmp_path: Path) -> None:
    file = written(tmp_path, crew("call listen {}"))
    runs = [started(local, "run", file, "--id", "twin") for _ in range(2)]
    try:
        assert sorted(run.wait(60) for run in runs) == [0, 2]
    finally:
        for run in runs:
            run.stop()
    assert "there is a session twin already" in (local.data.parent / "session.log").read_text()
    assert [t["outcome"] for t in shown(local, "twin")["turns"]] == ["answered"]


@pytest.mark.real
def test_sessions_of_another_store_are_kept_and_shown_there(local: LocalMode, tmp_path: Path) -> None:
    require_postgres()
    with Postgres() as server:
        store = ("--store", server.database("s"))
        done = session(local, "run", written(tmp_path, crew("call listen {}")), "--id", "afar", *store)
        assert done.returncode == 0, done.stderr
        shown_there = session(local, "show", "afar", "-o", "json", *store)
        assert [c["outcome"] for c in json.loads(shown_there.stdout)["calls"]] == ["ok"]
    assert "no session is called afar" in session(local, "show", "afar").stderr


def test_a_shell_completes_ids_of_sessions(local: LocalMode, tmp_path: Path) -> None:
    assert session(local, "run", written(tmp_path, crew("x")), "--id", "completed").returncode == 0
    environ = {
        "COMP_WORDS": "toolcrib session show comp", "COMP_CWORD": "3", "_TOOLCRIB_COMPLETE": "complete_bash",
    }  # fmt: skip
    argv = [sys.executable, "-m", "toolcrib_cli"]
    environ = os.environ | environ | {"TOOLCRIB_DATA": str(local.data)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True)
    assert done.stdout.split() == ["completed"], done.stderr


# ---- before the first turn ----


def test_a_registry_that_is_away_is_named_and_nothing_begins(local: LocalMode, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c")
    with answering(lambda asked: Answer(b"{}", 500)) as port:
        url = f"http://127.0.0.1:{port}"
        file = written(tmp_path, crew("x", tokenFile="token"))
        done = session(local, "run", file, "--id", "never", "--url", url)
        minted = session(local, "run", written(tmp_path, crew("x")), "--id", "never", "--url", url)
    assert (minted.returncode, "is not the local mode of" in minted.stderr) == (2, True)
    assert done.returncode == 3
    assert "the session does not begin: registry http://127.0.0.1" in done.stderr
    assert session(local, "show", "never").returncode == 2


@pytest.mark.parametrize(("need", "code"), [("required", 3), ("degrade", 0)])
def test_a_model_that_hangs_is_named_and_ends_it_or_is_done_without_as_the_file_says(
    local: LocalMode, tmp_path: Path, need: str, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = {"url": f"http://127.0.0.1:{silent.getsockname()[1]}/v1", "name": "hangs"}
        agents = (crew("x", model=hanging, bounds={"seconds": 0.5}), crew("call listen {}", "second"))
        file = written(tmp_path, *agents, needs={"model": need})
        done = session(local, "run", file, "--id", f"hangs-{need}", "-o", "json")
    assert done.returncode == code, done.stderr
    assert f"model hangs: {need}: the model endpoint" in done.stderr
    assert "did not respond in time" in done.stderr
    assert "issuer heist/crew: ok" in done.stderr
    if need == "degrade":
        turns = json.loads(done.stdout)["turns"]
        assert [turn["outcome"] for turn in turns] == ["model_failed", "answered"]


def test_an_account_whose_token_is_refused_is_named(local: LocalMode, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("not.a.token")
    done = session(local, "run", written(tmp_path, crew("x", tokenFile="token")), "--id", "refused")
    assert done.returncode == 3
    assert "issuer heist/crew: the registry does not accept its token" in done.stderr


def test_an_account_that_nobody_knows_is_named_with_what_to_do(local: LocalMode, tmp_path: Path) -> None:
    done = session(local, "run", written(tmp_path, crew("x", tokenFile="missing")), "--id", "nobody")
    assert done.returncode == 3
    assert "issuer heist/crew: no token in" in done.stderr


@pytest.mark.parametrize(("need", "code"), [("required", 3), ("degrade", 0)])
def test_a_model_that_is_away_ends_it_or_is_done_without_as_the_file_says(
    local: LocalMode, tmp_path: Path, need: str, code: int
) -> None:
    away = {"url": "http://127.0.0.1:9/v1", "name": "away"}
    agents = (crew("x", model=away, bounds={"seconds": 0.5}), crew("call listen {}", "second"))
    done = session(local, "run", written(tmp_path, *agents, needs={"model": need}), "--id", f"model-{need}")
    assert done.returncode == code, done.stderr
    assert f"model away: {need}: the model endpoint 127.0.0.1:9 cannot be reached" in done.stdout


@pytest.mark.parametrize(("need", "code"), [("required", 3), ("degrade", 0)])
def test_memory_that_nobody_grants_ends_it_or_is_done_without_as_the_file_says(
    local: LocalMode, tmp_path: Path, need: str, code: int
) -> None:
    done = session(
        local,
        "run",
        written(tmp_path, crew("x"), needs={"memory": need}, messages="keep"),
        "--id",
        f"memory-{need}",
    )
    assert done.returncode == code, done.stderr
    lacking = "heist/crew is not granted get_compressed_memory and store_memory"
    assert f"memory crew: {need}: {lacking}" in done.stdout


# ---- in the middle ----


@pytest.fixture
def held(backend: SlowBackend) -> Iterator[SlowBackend]:
    while not backend.began.empty():
        backend.began.get()
    backend.only = frozenset()
    backend.hold()
    yield backend
    backend.answer()


def test_after_a_kill_it_goes_on_after_the_last_finished_turn_and_repeats_only_what_may_be_repeated(
    local: LocalMode, tmp_path: Path, held: SlowBackend
) -> None:
    agents = (
        crew("Say something.", "first"),
        crew("call listen {}\ncall drill {}", "second"),
        crew("call listen {}", "third"),
    )
    held.only = frozenset({"/drill"})
    with ExitStack() as stack:
        run = started(local, "run", written(tmp_path, *agents), "--id", "killed")
        stack.callback(run.stop)
        assert [held.began.get(timeout=60) for _ in range(2)] == ["/listen", "/drill"]
        run.kill()
        (first, second) = shown(local, "killed")["turns"]
        assert (first["attempt"], second["outcome"]) == (1, "running")

    resumed = session(local, "resume", "killed")
    assert resumed.returncode == 0, resumed.stderr
    assert "Watching for 6 s" in resumed.stdout
    assert "Turn 1/3" not in resumed.stdout
    found = shown(local, "killed")
    assert [(t["number"], t["attempt"]) for t in found["turns"]] == [(1, 1), (2, 2), (3, 1)]
    drills = [(c["attempt"], c["outcome"]) for c in found["calls"] if c["tool"] == "drill"]
    assert drills == [(1, "unknown"), (2, "already_called")]
    listens = [(c["turn"], c["attempt"], c["outcome"]) for c in found["calls"] if c["tool"] == "listen"]
    assert listens == [(2, 1, "ok"), (2, 2, "ok"), (3, 1, "ok")]
    paths = [held.began.get(timeout=60) for _ in range(2)]
    assert (paths, held.began.empty()) == (["/listen", "/listen"], True)


@pytest.mark.slow
def test_of_two_processes_that_resume_a_killed_session_one_runs_it(
    local: LocalMode, tmp_path: Path, held: SlowBackend
) -> None:
    run = started(local, "run", written(tmp_path, crew("call listen {}")), "--id", "contested")
    try:
        assert held.began.get(timeout=60) == "/listen"
    finally:
        run.kill()
    held.answer()
    both = [started(local, "resume", "contested") for _ in range(2)]
    try:
        assert sorted(each.wait(90) for each in both) in ([0, 1], [0, 2])
    finally:
        for each in both:
            each.stop()
    found = shown(local, "contested")
    assert [(t["outcome"], t["attempt"]) for t in found["turns"]] == [("answered", 2)]
    listens = [(c["attempt"], c["outcome"]) for c in found["calls"]]
    assert listens == [(1, "unknown"), (2, "ok")], "in flight, and repeated, since the tool is idempotent"


@pytest.mark.slow
def test_pausing_a_session_whose_run_was_killed_says_that_nobody_runs_it(
    local: LocalMode, tmp_path: Path, held: SlowBackend
) -> None:
    run = started(local, "run", written(tmp_path, crew("call listen {}")), "--id", "abandoned")
    try:
        assert held.began.get(timeout=60) == "/listen"
    finally:
        run.kill()
    done = session(local, "pause", "abandoned")
    assert (done.returncode, "Nobody runs abandoned" in done.stdout) == (0, True), done.stderr
    assert shown(local, "abandoned")["session"]["state"] == "paused"
    held.answer()
    resumed = session(local, "resume", "abandoned")
    assert (resumed.returncode, "Watching" in resumed.stdout) == (0, False), resumed.stderr


@pytest.mark.slow
def test_a_session_that_runs_is_not_resumed_and_stops_after_its_turn_when_it_is_paused(
    local: LocalMode, tmp_path: Path, held: SlowBackend
) -> None:
    agents = (crew("call listen {}", "first"), crew("call listen {}", "second"))
    run = started(local, "run", written(tmp_path, *agents), "--id", "paused")
    try:
        assert held.began.get(timeout=60) == "/listen"
        refused = session(local, "resume", "paused")
        assert (refused.returncode, "paused is run by another process" in refused.stderr) == (1, True)
        assert session(local, "pause", "paused").returncode == 0
        held.answer()
        assert run.wait(60) == 0
    finally:
        run.stop()
    found = shown(local, "paused")
    assert (found["session"]["state"], found["session"]["reason"], len(found["turns"])) == (
        "paused",
        "asked for",
        1,
    )
    assert session(local, "pause", "paused").returncode == 2
    resumed = session(local, "resume", "paused")
    assert (resumed.returncode, "Watching" in resumed.stdout) == (0, False)
    assert [t["outcome"] for t in shown(local, "paused")["turns"]] == ["answered"] * 2


@pytest.mark.slow
def test_top_follows_a_session_while_it_runs_until_ctrl_c(
    local: LocalMode, tmp_path: Path, held: SlowBackend
) -> None:
    log = tmp_path / "top"
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"} | {
        "TOOLCRIB_DATA": str(local.data)
    }
    with ExitStack() as stack:
        out = stack.enter_context(log.open("wb"))
        # a program of its own, not a fork of one: what it prints goes through its own buffer
        top = spawn(
            [sys.executable, "-m", "toolcrib_cli", "sessions", "top"], stdout=out, stderr=out, env=environ
        )
        stack.callback(end, top)
        run = started(local, "run", written(tmp_path, crew("call listen {}")), "--id", "watched")
        stack.callback(run.stop)
        assert held.began.get(timeout=60) == "/listen"
        wait_until(lambda: "watched\trunning\tcrew\t1\t1\t0\t0" in log.read_text(), 30)
        held.answer()
        assert run.wait(60) == 0
        wait_until(lambda: "watched\tfinished\tcrew\t1\t1\t0\t0" in log.read_text(), 30)
        os.kill(top.pid, signal.SIGINT)
        assert top.wait(30) == 130
    assert "Traceback" not in log.read_text()


def test_ctrl_c_leaves_it_paused_so_that_it_is_resumed_at_once(
    local: LocalMode, tmp_path: Path, held: SlowBackend
) -> None:
    run = started(local, "run", written(tmp_path, crew("call listen {}")), "--id", "interrupted")
    try:
        assert held.began.get(timeout=60) == "/listen"
        os.kill(run.pid, 15)
        assert run.wait(60) == 130
    finally:
        run.stop()
    found = shown(local, "interrupted")["session"]
    assert (found["state"], found["reason"]) == ("paused", "interrupted")
    held.answer()
    resumed = session(local, "resume", "interrupted")
    assert (resumed.returncode, "Watching" in resumed.stdout) == (0, False), resumed.stderr


def test_an_agent_that_is_suspended_in_the_middle_of_a_call_ends_its_turn_not_the_session(
    local: LocalMode, tmp_path: Path, held: SlowBackend
) -> None:
    agents = (crew("call listen {}", "first"), crew("Say something.", "second"))
    run = started(local, "run", written(tmp_path, *agents), "--id", "suspended")
    try:
        assert held.began.get(timeout=60) == "/listen"
        assert local.toolcrib("agent", "suspend", "heist/crew").returncode == 0
        assert run.wait(60) == 0
    finally:
        run.stop()
        assert local.toolcrib("agent", "resume", "heist/crew").returncode == 0
    found = shown(local, "suspended")
    assert [t["outcome"] for t in found["turns"]] == ["answered"] * 2
    (call,) = found["calls"]
    assert call["outcome"] == "revoked"


# ---- what is no session ----


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "/nowhere.yaml"), "cannot read /nowhere.yaml: No such file"),
        (("show", "valt"), "no session is called valt"),
        (("resume", "vault"), "vault is finished"),
        (("run", str(HEIST / "session.yaml"), "--id", "vault"), "there is a session vault already"),
        (("run", str(HEIST / "session.yaml"), "--id", ""), "not an id of a session"),
        (("run", str(HEIST / "session.yaml"), "--id", "../vault"), "not an id of a session: ../vault"),
        (("run", str(HEIST / "session.yaml"), "--id", "vault\n"), "not an id of a session"),
        (("list", "--store", "postgresql://u:s3cret@h/d"), "the store's URL holds a password"),
        (("list", "--store", "postgresql://u@h/d?password=s3cret"), "the store's URL holds a password"),
        (("list", "--store", "mysql://h/d"), "a store is SQLite or PostgreSQL"),
    ],
)
def test_what_is_no_session_or_no_store_is_refused_with_what_is_wrong(
    local: LocalMode, arguments: tuple[str, ...], said: str
) -> None:
    done = session(local, *arguments)
    assert done.returncode in (2, 3)
    assert said in done.stderr
    assert "s3cret" not in done.stderr
