"""The embedded index is deleted or damaged, under a running registry and before a start, or its process is killed in
the middle of a write: searches go on and show nothing foreign, and what keeps the index makes it whole again."""

import itertools
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from emptied import empty
from fresh_requests import fresh
from hash_embedder import HashEmbedder
from realparts.processes import wait_until
from registry_harness import OPERATOR, RunningRegistry, binding, mint, running_registry, tool
from registry_process import RegistryProcess, configuration, process
from toolcrib.wire.index import IndexRequest
from toolcrib_registry.adapters.embedded.store import FILE_NAME

NOUNS = ("file", "invoice", "customer", "ticket", "city", "flight", "hotel", "backup", "database", "mail")
TOOLS = [
    tool(
        f"tool_{i:03d}",
        description=f"Read the {NOUNS[i % 10]} of the {NOUNS[i // 10 % 10]} word{i}.",
        scopes=("hidden",) if i % 7 == 0 else ("s",),
    )
    for i in range(240)
]
SEEN = {t.tool_id for t in TOOLS if t.scopes == ("s",)}
GRANTS = [binding("bot", ["s"])]


@contextmanager
def registry(folder: Path) -> Iterator[RunningRegistry]:
    """A registry whose index lies in `folder`."""
    place = {"kind": "embedded", "path": str(folder)}
    with running_registry(TOOLS, GRANTS, embedder=HashEmbedder(), store=place) as r:
        yield r


def search(r: RunningRegistry) -> dict[str, Any]:
    """The answer to words that one tool carries; whatever the state of the index, that tool is the first."""
    body = {"query": "the invoice of the city word41", "min_score": 0}
    answer = r.http.post(r.url + "/v1/search", headers=r.auth("team", "bot"), json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["tools"][0]["tool_id"] == "team/tool-041"
    assert {hit["tool_id"] for hit in found["tools"]} <= SEEN
    return found


def mend(r: RunningRegistry) -> bool:
    """What the operator does: write what the inventory lacks, as far as that goes now. Whether nothing was to do."""
    held = r.admin("GET", "/v1/admin/index")
    assert held.status_code in (200, 503)
    if held.status_code == 503:
        return False
    wanted = [t.tool_id for t in TOOLS if held.json()["tools"].get(t.tool_id) != t.digest]
    for start in range(0, len(wanted), 100):
        answer = r.admin("POST", "/v1/admin/index", json={"epoch": 1, "upsert": wanted[start : start + 100]})
        assert answer.status_code in (200, 503)
        if answer.status_code == 503:
            assert answer.json()["code"] == "index_unavailable"
            assert int(answer.headers["retry-after"]) > 0
    return not wanted


def mended(r: RunningRegistry) -> float:
    """Seconds until the index is whole."""
    start = time.perf_counter()
    wait_until(lambda: mend(r), 60, interval=0)
    return time.perf_counter() - start


def garbage(file: Path) -> None:
    """Every byte of the file is another one."""
    with file.open("r+b") as raw:
        raw.write(random.Random(1).randbytes(file.stat().st_size))


def cut(file: Path) -> None:
    """Half of it is gone."""
    with file.open("r+b") as raw:
        raw.truncate(file.stat().st_size // 2)


def deleted(file: Path) -> None:
    """It and its journals are gone."""
    for path in file.parent.glob(FILE_NAME + "*"):
        path.unlink()


@pytest.mark.parametrize("harm", [garbage, pytest.param(cut, marks=pytest.mark.long), deleted])
def test_an_index_that_is_harmed_under_a_running_registry_costs_no_search(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    with registry(tmp_path) as r:
        mended(r)
        whole = search(r)
        start = time.perf_counter()
        harm(tmp_path / FILE_NAME)

        modes = {search(r)["search_mode"]}
        # sooner or later something is written
        again = [t.tool_id for t in TOOLS[:100]]
        for _ in range(3):
            answer = r.admin("POST", "/v1/admin/index", json={"epoch": 1, "upsert": again})
            assert answer.status_code in (200, 503)
            found = search(r)
            assert found["degraded"] == (found["search_mode"] != "hybrid")
            modes.add(found["search_mode"])
        mended(r)
        assert search(r) == whole
        seconds = time.perf_counter() - start
    with registry(tmp_path) as r:
        mended(r)
        assert search(r) == whole

    assert modes <= {"hybrid", "lexical"}
    print(f"embedded index harmed ({harm.__name__}): {len(TOOLS)} tools whole again in {seconds:.2f} s")


@pytest.mark.parametrize("harm", [garbage, pytest.param(cut, marks=pytest.mark.long), deleted])
def test_an_index_that_was_damaged_before_the_start_is_recreated(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    with registry(tmp_path) as r:
        mended(r)
        whole = search(r)
    harm(tmp_path / FILE_NAME)
    with registry(tmp_path) as r:
        before = search(r)
        seconds = mended(r)
        after = search(r)

    assert (before["search_mode"], before["degraded"]) == ("lexical", True)
    assert before.get("degradation", "index_empty") == "index_empty"
    assert after == whole
    print(f"embedded index harmed before the start ({harm.__name__}): whole again in {seconds:.2f} s")


@pytest.mark.long
def test_an_index_that_is_wiped_under_load_shows_nothing_foreign_and_is_filled_again(tmp_path: Path) -> None:
    with registry(tmp_path) as r:
        mended(r)
        whole = search(r)
        stop = threading.Event()
        said: list[tuple[int, dict[str, Any], float]] = []
        problems: list[str] = []

        def call(number: int) -> None:
            with httpx.Client(timeout=20) as http:
                for i in itertools.cycle(range(number, len(TOOLS), 8)):
                    if stop.is_set():
                        return
                    if TOOLS[i].scopes != ("s",):
                        continue
                    body = {"query": fresh(TOOLS[i].description), "min_score": 0}
                    start = time.perf_counter()
                    answer = http.post(r.url + "/v1/search", headers=r.auth("team", "bot"), json=body)
                    if answer.status_code != 200:
                        problems.append(answer.text)
                        return
                    said.append((i, answer.json(), time.perf_counter() - start))

        callers = [threading.Thread(target=call, args=(n,)) for n in range(8)]
        for caller in callers:
            caller.start()
        seconds = []
        try:
            for _ in range(3):
                answered = len(said)
                wait_until(lambda answered=answered: len(said) > answered + 50, 60)  # type: ignore[misc]
                start = time.perf_counter()
                r.on_loop(lambda: empty(r.registry.store))
                wait_until(lambda: mend(r) and search(r) == whole, 60)
                seconds.append(time.perf_counter() - start)
        finally:
            stop.set()
            for caller in callers:
                caller.join(30)

    assert not problems
    for i, found, _ in said:
        ids = [hit["tool_id"] for hit in found["tools"]]
        assert ids[0] == TOOLS[i].tool_id, found
        assert set(ids) <= SEEN
        assert len(set(ids)) == len(ids)
    slowest = max(took for *_, took in said)
    assert slowest < 3.5
    print(
        f"embedded index wiped three times under 8 callers, {len(TOOLS)} tools: {len(said)} answers, the slowest {slowest:.2f} s; "
        f"full recall after {', '.join(f'{s:.1f}' for s in seconds)} s"
    )


@pytest.mark.long
def test_a_registry_that_is_killed_while_it_writes_starts_with_what_is_sound(tmp_path: Path) -> None:
    config = configuration(tmp_path, embedder={"kind": "packaged"})
    tools = TOOLS[:100]
    query = {"query": "the invoice of the city word41"}
    admin = {
        "Authorization": f"Bearer {mint(OPERATOR, audience='toolcrib-admin')}",
        "content-type": "application/json",
    }
    agent = {"Authorization": f"Bearer {mint('system:serviceaccount:team:bot')}"}
    http = httpx.Client(timeout=30)

    def write(running: RegistryProcess, acknowledged: dict[str, str], starts: Iterable[int]) -> None:
        for start in starts:
            part = tuple(t.tool_id for t in tools[start : start + 5])
            body = IndexRequest(epoch=1, upsert=part).model_dump_json()
            try:
                answer = http.post(f"{running.admin_url}/v1/admin/index", headers=admin, content=body)
            except httpx.TransportError:
                return
            acknowledged.update(answer.json()["indexed"])

    acknowledged: dict[str, str] = {}
    with process(config) as running:
        running.publish(*tools, bindings=tuple(GRANTS))
        # on and on, so that it writes whenever it is killed; never the last five
        starts = itertools.cycle(range(0, len(tools) - 5, 5))
        writing = threading.Thread(target=write, args=(running, acknowledged, starts))
        writing.start()
        enough = random.Random(20261122).randrange(10, 60, 5)
        wait_until(lambda: len(acknowledged) >= enough, 60, interval=0)
        running.child.send_signal(signal.SIGKILL)
        running.child.wait(30)
        writing.join(30)
    before = dict(acknowledged)
    with process(config) as running:
        running.publish(*tools, bindings=tuple(GRANTS))
        held = http.get(f"{running.admin_url}/v1/admin/index", headers=admin).json()["tools"]
        partly = http.post(f"{running.url}/v1/search", headers=agent, json=query).json()
        write(running, acknowledged, range(0, len(tools), 5))
        found = http.post(f"{running.url}/v1/search", headers=agent, json=query).json()
    http.close()

    assert before.items() <= held.items() <= {t.tool_id: t.digest for t in tools}.items()
    assert len(held) < len(tools)
    assert partly["tools"][0]["tool_id"] == found["tools"][0]["tool_id"] == "team/tool-041"
    assert acknowledged == {t.tool_id: t.digest for t in tools}
    assert (found["search_mode"], found["degraded"]) == ("hybrid", False)
