"""Runs of sessions when what they stand on goes away: the store, the right to run, the machine's patience."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from realparts.postgres_server import Postgres
from realparts.required import require_postgres
from small_registry import SmallRegistry, SmallTool, serving
from toolcrib_cli.session_store.database import Database, StoreError
from toolcrib_cli.session_store.records import Call, Records, State, TakenOver
from toolcrib_cli.sessions import definition, running, team

Called = Callable[..., Any]


@contextmanager
def ready(tmp_path: Path, tools: Mapping[str, Called], prompts: list[str]) -> Iterator[team.Team]:
    """A session's team at a small registry with these tools, with the scripted model."""
    agents = [{"name": f"a{n}", "account": "heist/a", "prompt": p} for n, p in enumerate(prompts)]
    made = definition.Definition.model_validate({"session": {"name": "n"}, "agents": agents})
    listed = [SmallTool(name, run, name, {}) for name, run in tools.items()]
    with ExitStack() as stack:
        registry = stack.enter_context(serving(SmallRegistry(*listed)))
        yield stack.enter_context(
            team.composed(made, registry.url, folder=tmp_path, mint=lambda account: lambda: "token-1")
        )


def begun(records: Records, made: team.Team, ident: str = "s", holder: str = "h") -> running.Run:
    records.create(ident, "n", made.definition.as_json(), holder=holder, keeps=False, retention=60)
    return running.Run(records, made, ident, holder, lambda *_: None, with_memory=False)


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


def test_the_clock_decides_nothing_a_run_that_shows_signs_of_life_is_left_alone(tmp_path: Path) -> None:
    with Database.in_folder(tmp_path) as database:
        back = Records(database, clock=iter([1e9, 5.0, 5.0, 5.0]).__next__)
        back.create("s", "n", "{}", holder="alive", keeps=False, retention=60)
        seen = back.find("s")
        assert seen is not None
        assert not running.take_over(back, seen, "me", wait=lambda _: back.beat("s", "alive"))
        assert running.take_over(back, back.find("s") or seen, "me", wait=lambda _: None)


def test_a_hundred_sessions_write_at_once_and_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    with Database.in_folder(tmp_path) as database:
        records = Records(database)
        failed: list[BaseException] = []

        def work(number: int) -> None:
            ident, call = f"s{number}", Call(1, 1, 1, "a", "look", "d", "started", 0.0)
            try:
                records.create(ident, "n", "{}", holder=ident, keeps=False, retention=60)
                records.begin_turn(ident, ident, 1, "a")
                records.begin_call(ident, ident, call)
                records.end_call(ident, ident, call, "ok", 0.1, used_by="heist/a")
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert records.uses("heist/a") == {"look": 100}
        assert {s.id for s in records.sessions()} == {f"s{n}" for n in range(100)}
