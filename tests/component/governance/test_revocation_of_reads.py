"""Reads while, and after, something is revoked: a search that is on its way, an index that is older than the policy."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib.resources.tools import ToolState
from toolcrib.wire.index import IndexRequest
from toolcrib_registry.settings_sections import Store
from waiting_embedder import WaitingEmbedder

pytestmark = pytest.mark.guarantee


def test_a_search_that_is_on_its_way_never_shows_what_was_revoked_before_its_answer() -> None:
    names = ("reader_one", "reader_two", "reader_three", "reader_four")
    tools = [tool(name, description="Read a file.") for name in names]
    granted = [binding("bot", (f"{name}:use",), name=name.replace("_", "-")) for name in names]
    embedder = WaitingEmbedder()
    with running_registry(tools, granted, embedder=embedder) as r, ThreadPoolExecutor(1) as pool:
        query = {"query": "read a file", "limit": 10}
        search = pool.submit(r.http.post, r.url + "/v1/search", headers=r.auth("team", "bot"), json=query)
        assert embedder.asked.wait(30)
        disabled = tools[2].model_copy(update={"state": ToolState.DISABLED, "generation": 2})
        r.publish([disabled], remove_bindings=["uid-team-reader-one"], remove_tools=["team/reader-four"])
        embedder.go.set()
        answer = search.result(30).json()
        listed = r.http.get(r.url + "/v1/tools", headers=r.auth("team", "bot")).json()

    assert [t["name"] for t in answer["tools"]] == ["reader_two"]
    assert answer["revision"] == listed["revision"]


def searched(r: RunningRegistry, query: str) -> tuple[str, dict[str, str]]:
    body = r.http.post(f"{r.url}/v1/search", headers=r.auth("team", "bot"), json={"query": query}).json()
    return body["search_mode"], {t["name"]: t["short_desc"] for t in body["tools"]}


def index(r: RunningRegistry, *names: str) -> None:
    request = IndexRequest(epoch=1, upsert=tuple(f"team/{n}" for n in names))
    answer = r.admin("POST", "/v1/admin/index", content=request.model_dump_json())
    assert set(answer.json()["indexed"]) == {f"team/{n}" for n in names}


def inventory(r: RunningRegistry) -> dict[str, str]:
    held: dict[str, str] = r.admin("GET", "/v1/admin/index").json()["tools"]
    return held


def test_the_embedded_index_of_a_backup_shows_nothing_deleted_changed_or_revoked_and_looks_stale(
    tmp_path: Path,
) -> None:
    old, new = "Polish the antique lamp.", "Count the sheep of the meadow."
    names = ("relic", "chameleon", "secret", "steady")
    made = {name: tool(name, description=old) for name in names}
    granted = [binding("bot", (f"{name}:use",), name=name) for name in names]
    embedder = WaitingEmbedder()
    embedder.go.set()
    folder, backup = tmp_path / "index", tmp_path / "backup"
    store = Store(path=str(folder))
    with running_registry([*made.values()], granted, embedder=embedder, store=store) as r:
        index(r, *names)
        assert searched(r, old) == ("hybrid", dict.fromkeys(names, old))
    shutil.copytree(folder, backup)

    changed = tool("chameleon", description=new, generation=2)
    now = [changed, made["secret"], made["steady"]]
    left = [b for b in granted if b.name != "secret"]
    with running_registry(now, left, embedder=embedder, store=store) as r:
        index(r, "chameleon")
    shutil.rmtree(folder)
    backup.rename(folder)

    with running_registry(publish=False, embedder=embedder, store=store) as r:
        # the index alone grants nothing
        before = r.http.post(f"{r.url}/v1/search", headers=r.auth("team", "bot"), json={"query": old})
        assert (before.status_code, before.json()["code"]) == (503, "not_ready")
        r.publish(now, left)
        assert searched(r, old) == ("hybrid", {"steady": old})
        # to the operator, which compares digests, this has to be written anew and that has to go
        held = inventory(r)
        assert held["team/steady"] == made["steady"].digest
        assert held["team/chameleon"] not in (changed.digest, made["chameleon"].digest)
        assert "team/relic" in held
        index(r, "chameleon")
        assert inventory(r)["team/chameleon"] == changed.digest
        assert searched(r, new)[1]["chameleon"] == new
