"""Runs of sessions when what they stand on goes away: the store, the right to run, the machine's patience."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import model_stub
from realparts.postgres_server import Postgres
from realparts.required import require_postgres
from small_registry import Problem, SmallRegistry, SmallTool, serving
from stub_server import Answer, Asked, Request, answering, handling
from toolcrib_cli.session_store.database import Database, StoreError
from toolcrib_cli.session_store.records import Records, TakenOver
from toolcrib_cli.session_store.rows import State
from toolcrib_cli.sessions import definition, running, team
from toolcrib_cli.sessions.recording import RecordingTools
from toolcrib_runner.errors import RunnerError, ToolError

Called = Callable[..., Any]


@contextmanager
def ready(
    tmp_path: Path,
    tools: Mapping[str, Called],
    prompts: list[str],
    *,
    model: str | None = None,
    keep: bool = False,
    mode: str = "auto",
    searchable: bool = False,
    registry: SmallRegistry | None = None,
    seconds: float = 300.0,
    dialect: str = "native",
) -> Iterator[team.Team]:
    """A session's team at a small registry with these tools; without a model's URL with the scripted model."""
    common = {"account": "heist/a", "mode": mode, "dialect": dialect, "bounds": {"seconds": seconds}}
    agents = [common | {"name": f"a{n}", "prompt": p} for n, p in enumerate(prompts)]
    facts = {"name": "n", "messages": "keep" if keep else "discard"}
    made = definition.Definition.model_validate({"session": facts, "model": {"url": model}, "agents": agents})
    listed = [SmallTool(name, run, name, {}) for name, run in tools.items()]
    with ExitStack() as stack:
        registry = stack.enter_context(serving(registry or SmallRegistry()))
        registry.set_tools(*listed)
        registry.searchable = searchable
        yield stack.enter_context(
            team.composed(made, registry.url, folder=tmp_path, mint=lambda account: lambda: "token-1")
        )


def begun(records: Records, made: team.Team, ident: str = "s", holder: str = "h") -> running.Run:
    records.create(ident, "n", made.definition.as_json(), holder=holder, keeps=False, retention=60)
    return running.Run(records, made, ident, holder, lambda *_: None, with_memory=False)


@pytest.mark.real
def test_a_store_that_goes_away_in_a_turn_ends_the_run_with_one_reason_and_it_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    require_postgres()
    with Postgres() as server:
        times = iter(range(100))

        def look() -> str:
            if next(times) == 1:
                server.kill()
            return "ok"

        with (
            Database.at(server.database("s")) as database,
            ready(tmp_path, {"look": look}, ["call look {}"] * 3) as made,
        ):
            records = Records(database)
            run = begun(records, made)
            with pytest.raises(StoreError, match=r"the store postgresql://toolcrib@127\.0\.0\.1"):
                run.until_done()
            server.start()
            seen = records.find("s")
            assert seen is not None
            assert [(t.number, t.outcome) for t in records.turns("s")] == [(1, "answered"), (2, "running")]
            assert running.take_over(records, seen, "h2", still=0, wait=lambda _: None)
            again = running.Run(records, made, "s", "h2", lambda *_: None, with_memory=False)
            assert again.until_done() is State.FINISHED
            assert [(t.number, t.attempt) for t in records.turns("s")] == [(1, 1), (2, 2), (3, 1)]
            assert [(c.turn, c.outcome) for c in records.calls("s") if c.attempt == 1] == [
                (1, "ok"), (2, "unknown"), (3, "ok"),
            ]  # fmt: skip


def test_a_run_whose_session_was_taken_over_makes_no_further_call(tmp_path: Path) -> None:
    made_calls: list[str] = []
    with Database.in_folder(tmp_path) as database:
        records = Records(database)

        def look() -> str:
            made_calls.append("look")
            seen = records.find("s")
            assert seen is not None
            assert records.take(seen, "other")
            return "ok"

        def drill() -> str:
            made_calls.append("drill")
            return "ok"

        prompts = ["call look {}\ncall drill {}", "call drill {}"]
        with ready(tmp_path, {"look": look, "drill": drill}, prompts) as made:
            with pytest.raises(TakenOver):
                begun(records, made).until_done()
        assert made_calls == ["look"]
        held = records.find("s")
        assert held is not None
        assert (held.holder, held.state) == ("other", State.RUNNING)


def test_of_two_who_resume_at_once_one_runs(tmp_path: Path) -> None:
    with Database.in_folder(tmp_path) as database:
        records = Records(database)
        records.create("s", "n", "{}", holder="dead", keeps=False, retention=60)
        seen = records.find("s")
        assert seen is not None
        together = threading.Barrier(2)
        won: list[str] = []

        def resume(name: str) -> None:
            if running.take_over(records, seen, name, wait=lambda _: together.wait()):
                won.append(name)

        threads = [threading.Thread(target=resume, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1


def test_a_session_that_nobody_runs_is_paused_at_once_and_one_that_lives_is_left_to_its_run(
    tmp_path: Path,
) -> None:
    with Database.in_folder(tmp_path) as database:
        records = Records(database)
        records.create("s", "n", "{}", holder="dead", keeps=False, retention=60)
        seen = records.find("s")
        assert seen is not None
        assert not running.pause_abandoned(records, seen, "me", wait=lambda _: records.beat("s", "dead"))
        seen = records.find("s")
        assert seen is not None
        assert seen.state is State.RUNNING
        assert running.pause_abandoned(records, seen, "me", still=0.01)
        found = records.find("s")
        assert found is not None
        assert (found.state, found.holder, found.reason) == (State.PAUSED, None, "asked for; nobody ran it")
        with pytest.raises(TakenOver):
            records.beat("s", "dead")


def test_a_turn_whose_token_is_refused_fails_with_the_reason_and_the_next_one_goes_on(tmp_path: Path) -> None:
    registry = SmallRegistry()

    def look() -> str:
        registry.accept("another")
        return "ok"

    def told(number: int, agent: Any, ended: Any) -> None:
        if number == 2 and ended is not None:
            registry.accept("token-1")

    prompts = ["call look {}", "Say something.", "Say something."]
    with (
        Database.in_folder(tmp_path) as database,
        ready(tmp_path, {"look": look}, prompts, registry=registry) as made,
    ):
        records = Records(database)
        records.create("s", "n", made.definition.as_json(), holder="h", keeps=False, retention=60)
        run = running.Run(records, made, "s", "h", told, with_memory=False)
        assert run.until_done() is State.FINISHED
        turns = records.turns("s")
    assert [t.outcome for t in turns] == ["answered", "stopped", "answered"]
    assert turns[1].error == "the registry does not accept the token of heist/a"


def test_an_agent_whose_model_writes_its_calls_as_text_makes_them(tmp_path: Path) -> None:
    with (
        Database.in_folder(tmp_path) as database,
        model_stub.serving([model_stub.text("CALL: look {}"), model_stub.text("done")]) as model,
        ready(tmp_path, {"look": lambda: "ok"}, ["Look."], model=model.url, dialect="text") as made,
    ):
        records = Records(database)
        assert begun(records, made).until_done() is State.FINISHED
        assert [(call.tool, call.outcome) for call in records.calls("s")] == [("look", "ok")]


@pytest.mark.parametrize("begun_answer", [b"", b'{"id": "1", "object": "chat.compl'])
def test_a_model_that_dies_in_the_middle_of_a_turn_fails_that_turn_and_the_session_goes_on(
    tmp_path: Path, begun_answer: bytes
) -> None:
    asked: list[str] = []

    def handle(request: Request) -> None:
        asked.append(request.json()["messages"][-1]["content"])
        if "Speak." in asked[-1]:
            request.send(model_stub.answer(model_stub.text("spoken")))
        elif len(asked) == 1:
            request.send(model_stub.answer(model_stub.function("look", {})))
        else:
            if begun_answer:
                request.begin({"content-type": "application/json", "content-length": "2000"})
                request.write(begun_answer)
            request.cut()

    with (
        Database.in_folder(tmp_path) as database,
        handling(handle) as port,
        ready(
            tmp_path, {"look": lambda: "ok"}, ["Look.", "Speak."], model=f"http://127.0.0.1:{port}/v1", keep=True,
            seconds=2.0,
        ) as made,
    ):  # fmt: skip
        records = Records(database)
        assert begun(records, made).until_done() is State.FINISHED
        first, second = records.turns("s")
        assert [call.outcome for call in records.calls("s")] == ["ok"]
    assert (first.outcome, first.replies) == ("model_failed", 1)
    assert f"the model endpoint 127.0.0.1:{port} cannot be reached" in first.error
    assert (second.outcome, second.answer) == ("answered", "spoken")
    assert len(asked) > 3, "a model that is away is tried again while there is time"


def test_the_clock_decides_nothing_a_run_that_shows_signs_of_life_is_left_alone(tmp_path: Path) -> None:
    with Database.in_folder(tmp_path) as database:
        back = Records(database, clock=iter([1e9, 5.0, 5.0, 5.0]).__next__)
        back.create("s", "n", "{}", holder="alive", keeps=False, retention=60)
        seen = back.find("s")
        assert seen is not None
        assert not running.take_over(back, seen, "me", wait=lambda _: back.beat("s", "alive"))
        assert running.take_over(back, back.find("s") or seen, "me", wait=lambda _: None)


def test_a_full_disk_ends_the_run_with_one_reason_and_it_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with (
        Database.in_folder(tmp_path) as database,
        model_stub.serving([model_stub.text("a" * 100_000)]) as model,
        ready(tmp_path, {}, ["Speak."] * 3, model=model.url, keep=True) as made,
    ):
        records = Records(database)
        run = begun(records, made)
        database.close()  # its connections; the next one has the bound
        pages = ["PRAGMA max_page_count = 60"]
        sa.event.listen(database._engine, "connect", lambda raw, _: raw.execute(pages[0]))
        with pytest.raises(StoreError, match="database or disk is full"):
            run.until_done()
        seen = records.find("s")
        assert seen is not None
        assert [(t.outcome, len(t.answer or "")) for t in records.turns("s")] == [
            ("answered", 100_000),
            ("running", 0),
        ]
        pages[0] = "PRAGMA max_page_count = 60000"
        database.close()
        assert running.take_over(records, seen, "h2", still=0, wait=lambda _: None)
        again = running.Run(records, made, "s", "h2", lambda *_: None, with_memory=False)
        assert again.until_done() is State.FINISHED
        assert [len(t.answer or "") for t in records.turns("s")] == [100_000] * 3


@pytest.mark.real
def test_an_answer_with_a_character_that_postgresql_cannot_store_ends_nothing(tmp_path: Path) -> None:
    require_postgres()
    with (
        Postgres() as server,
        Database.at(server.database("s")) as database,
        model_stub.serving([model_stub.text("one\0two")]) as model,
        ready(tmp_path, {}, ["Speak."], model=model.url, keep=True) as made,
    ):
        records = Records(database)
        assert begun(records, made).until_done() is State.FINISHED
        assert [turn.answer for turn in records.turns("s")] == ["one\ufffdtwo"]


@pytest.mark.parametrize("arguments", ['{"n": 1e999}', '{"n": "\\ud800"}'])
def test_arguments_that_no_json_can_carry_are_the_models_mistake_and_end_nothing(
    tmp_path: Path, arguments: str
) -> None:
    replies = [model_stub.function("look", arguments), model_stub.text("done")]
    with (
        Database.in_folder(tmp_path) as database,
        model_stub.serving(replies) as model,
        ready(tmp_path, {"look": lambda n: "ok"}, ["Look."], model=model.url) as made,
    ):
        records = Records(database)
        assert begun(records, made).until_done() is State.FINISHED
        assert [turn.outcome for turn in records.turns("s")] == ["answered"]
        assert "cannot be sent as JSON" in model_stub.results(model.requests[-1]["messages"])[0]


def secret_in_an_endpoints_refusal(asked: Asked) -> Answer:
    return Answer(json.dumps({"error": {"message": f"cannot read: {SECRET}"}}).encode(), 400)


def secret_in_a_search(asked: Asked) -> Answer:
    return model_stub.answer(model_stub.function("search_tools", {"query": SECRET}))


SECRET = "the-combination-is-31-07"


@pytest.mark.parametrize("said", [secret_in_an_endpoints_refusal, secret_in_a_search])
@pytest.mark.parametrize("keep", [False, True])
def test_a_reason_that_quotes_what_was_written_is_told_and_stored_only_where_messages_are(
    tmp_path: Path, said: Callable[[Asked], Answer], keep: bool
) -> None:
    told: list[str] = []
    with (
        Database.in_folder(tmp_path) as database,
        answering(said) as port,
        ready(
            tmp_path, {"look": lambda: "ok"}, ["Go."], model=f"http://127.0.0.1:{port}/v1", keep=keep,
            mode="dynamic", searchable=True,
        ) as made,
    ):  # fmt: skip
        records = Records(database)
        records.create("s", "n", made.definition.as_json(), holder="h", keeps=keep, retention=60)
        running.Run(
            records, made, "s", "h", lambda n, a, ended: told.append(ended.error if ended else ""),
            with_memory=False,
        ).until_done()  # fmt: skip
        (turn,) = records.turns("s")
        assert turn.outcome in ("model_failed", "looping")
        assert SECRET in told[-1]
        held = b"".join(file.read_bytes() for file in tmp_path.glob("sessions.sqlite*"))
        assert (SECRET.encode() in held) is keep


def test_a_turn_without_a_registry_is_recorded_and_the_session_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_DISCOVERED", 0.1)
    with Database.in_folder(tmp_path) as database, ready(tmp_path, {}, ["Go."] * 2) as made:
        made.url = "http://127.0.0.1:9"
        records = Records(database)
        assert begun(records, made).until_done() is State.FINISHED
        assert [t.outcome for t in records.turns("s")] == ["registry_away"] * 2
        assert "cannot be reached" in records.turns("s")[0].error


@pytest.mark.parametrize(
    ("status", "code", "again"),
    [(403, "revoked", False), (504, "upstream_timeout", False), (503, "registry_unavailable", False),
     (502, "upstream_error", False), (403, "not_permitted", True), (429, "limit_exceeded", True)],
)  # fmt: skip
def test_a_call_that_may_have_had_an_effect_is_not_repeated_after_an_interruption(
    tmp_path: Path, status: int, code: str, again: bool
) -> None:
    problems = [Problem(status, code)]
    calls: list[str] = []

    def drill() -> str:
        calls.append("drill")
        if problems:
            raise problems.pop()
        return "ok"

    with (
        Database.in_folder(tmp_path) as database,
        ready(tmp_path, {"drill": drill}, ["Go."], searchable=True) as made,
        made.agent(made.definition.agents[0], "s", 1) as agent,
    ):
        records = Records(database)
        records.create("s", "n", "{}", holder="h", keeps=False, retention=60)
        attempt = records.begin_turn("s", "h", 1, "a0")
        with pytest.raises(RunnerError):
            RecordingTools(agent, records, "s", "h", "heist/a", 1, attempt).call("drill", {})
        seen = records.find("s")
        assert seen is not None
        assert records.take(seen, "h2")
        tools = RecordingTools(
            agent, records, "s", "h2", "heist/a", 1, records.begin_turn("s", "h2", 1, "a0")
        )
        if again:
            assert tools.call("drill", {}) == "ok"
        else:
            with pytest.raises(ToolError, match="was called with these arguments"):
                tools.call("drill", {})
        assert len(calls) == 1 + again


def test_the_most_used_tools_of_an_account_are_those_of_all_its_sessions(tmp_path: Path) -> None:
    with (
        Database.in_folder(tmp_path) as database,
        ready(tmp_path, {"look": lambda: "ok"}, ["call look {}"]) as made,
        made.agent(made.definition.agents[0], "s2", 1) as agent,
    ):
        records = Records(database)
        for ident in ("s1", "s2"):
            begun(records, made, ident).until_done()
        stats = RecordingTools(agent, records, "s3", "h", "heist/a", 1, 1).usage_stats()
        assert (stats.usage_by_tool, stats.most_used_tool, stats.total_tool_calls) == ({"look": 2}, "look", 2)


@pytest.mark.slow
def test_a_hundred_sessions_run_at_once_and_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    names = [f"s{n}" for n in range(100)]
    with (
        Database.in_folder(tmp_path) as database,
        ready(tmp_path, {"look": lambda: "ok"}, ["call look {}"]) as made,
        ThreadPoolExecutor(100) as pool,
    ):
        records = Records(database)
        states = list(pool.map(lambda ident: begun(records, made, ident, ident).until_done(), names))
        assert states == [State.FINISHED] * 100
        assert records.uses("heist/a") == {"look": 100}
        assert {s.id for s in records.sessions()} == set(names)
        assert {t.outcome for ident in names for t in records.turns(ident)} == {"answered"}
        assert {c.outcome for ident in names for c in records.calls(ident)} == {"ok"}
