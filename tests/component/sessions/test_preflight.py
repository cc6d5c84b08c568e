"""Before the first turn: what is down or silent is named in two seconds, and ends the session or not as its file says."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stub_server import Answer, Request, handling
from toolcrib_cli.sessions import memory, preflight, team
from toolcrib_cli.sessions.definition import Definition
from toolcrib_cli.sessions.preflight import Preflight

NAMES = ("drill", memory.STORE, memory.RECALL)


class Registry:
    """A registry with three tools, one of them down; a path that is `silent` is never answered, one that drips never ends."""

    def __init__(self, *silent: str, drips: str = "") -> None:
        self._silent = silent
        self._drips = drips

    def handle(self, request: Request) -> None:
        if request.path == self._drips:
            request.write(b"HTTP/1.1 200 OK\r\nx-more: ")
            for _ in range(100):
                if request.gone(0.2):
                    break
                request.write(b"x")
            request.last()
        elif request.path in self._silent:
            request.gone(60)
            request.last()
        else:
            request.send(Answer(json.dumps(self._answer(request.path)).encode()))

    def _answer(self, path: str) -> object:
        if path == "/v1/search":
            hits = [{"tool_id": f"heist/{n}", "name": n, "unavailable": n == "drill"} for n in NAMES]
            return {"tools": hits}
        tools = [{"name": n, "endpoint": f"/tools/heist/{n}", "scopes": [f"{n}:use"]} for n in NAMES]
        return {"authenticated": True, "scopes": [], "tools": tools}


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def session(endpoint: int | None = None, agents: int = 1, **needs: str) -> Definition:
    team = [{"name": f"a{n}", "account": "heist/a", "prompt": "x"} for n in range(agents)]
    url = {} if endpoint is None else {"url": f"http://127.0.0.1:{endpoint}/v1", "name": "m"}
    facts = {"name": "n", "messages": "keep"}
    return Definition.model_validate({"session": facts, "needs": needs, "model": url, "agents": team})


def checked(
    definition: Definition, port: int, folder: Path, token: Callable[[], str] = lambda: "token"
) -> Preflight:
    """What is found, which takes no longer than the parts that are asked one after another."""
    url = f"http://127.0.0.1:{port}"
    with team.composed(definition, url, folder=folder, mint=lambda account: token) as made:
        began = time.monotonic()
        found = preflight.run(made)
        assert time.monotonic() - began < 2 * preflight.WITHIN + 5
    return found


def wrong(found: Preflight) -> list[tuple[str, str, str]]:
    return [(check.part, check.of, check.problem) for check in found.checks if check.problem]


@pytest.mark.parametrize("need", ["required", "degrade"])
def test_a_backend_that_is_down_is_named_and_required_or_done_without(tmp_path: Path, need: str) -> None:
    with handling(Registry().handle) as port:
        found = checked(session(backends=need), port, tmp_path)
    assert wrong(found) == [("tool backends", "heist/a", "down: heist/drill")]
    assert (len(found.missing), len(found.degraded)) == ((1, 0) if need == "required" else (0, 1))
    assert [view.tools for view in found.views] == [{n: (f"{n}:use",) for n in sorted(NAMES)}]


@pytest.mark.parametrize("need", ["required", "degrade"])
def test_parts_that_never_answer_are_named_after_two_seconds_and_required_or_done_without(
    tmp_path: Path, need: str
) -> None:
    assert preflight.WITHIN == 2.0
    registry = Registry("/v1/search", f"/tools/heist/{memory.RECALL}")
    with handling(registry.handle) as port, silent_port() as silent:
        found = checked(session(silent, model=need, backends=need, memory=need), port, tmp_path)
    late = "the registry did not respond in time"
    assert wrong(found) == [
        ("memory", "a0", late),
        ("tool backends", "heist/a", late),
        ("model", "m", f"the model endpoint 127.0.0.1:{silent} did not respond in time"),
    ]
    assert (len(found.missing), len(found.degraded)) == ((3, 0) if need == "required" else (0, 3))


def test_a_registry_that_never_answers_is_named_once_for_a_whole_team_in_two_seconds(tmp_path: Path) -> None:
    with silent_port() as port:
        found = checked(session(agents=50), port, tmp_path)
    url = f"http://127.0.0.1:{port}"
    assert set(wrong(found)) == {("registry", url, "the registry did not respond in time")}
    assert len(found.missing) == 50
    assert found.views == ()


def test_an_answer_that_drips_for_ever_is_given_up(tmp_path: Path) -> None:
    with handling(Registry(drips="/").handle) as port:
        found = checked(session(), port, tmp_path)
    assert wrong(found) == [("registry", f"http://127.0.0.1:{port}", "the registry did not respond in time")]


def test_an_issuer_that_never_answers_is_named(tmp_path: Path) -> None:
    ended = threading.Event()

    def token() -> str:
        ended.wait()
        return "token"

    with handling(Registry().handle) as port:
        try:
            found = checked(session(), port, tmp_path, token)
        finally:
            ended.set()
    ((part, of, problem),) = wrong(found)
    assert (part, of) == ("issuer", "heist/a")
    assert "gave no token within" in problem
    assert len(found.missing) == 1
