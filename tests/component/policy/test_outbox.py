"""Runtime registration in a cluster, the registry's side: what waits, what the operator is told, what callers hear."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry
from toolcrib import publishing
from toolcrib.wire.outbox import (
    Outbox,
    OutboxAck,
    OutboxAcks,
    OutboxEntry,
)
from toolcrib.wire.publish import PublishedTool, Revision
from toolcrib_registry.settings_limits import Limits

WRITER = binding("writer", ["registry:write"], namespace=None)
BODY = {"name": "fx", "endpoint": "/fx", "scopes": ["fx:use"], "description": "Exchange rates."}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def asked(r: RunningRegistry, pool: ThreadPoolExecutor, **change: Any) -> Future[httpx.Response]:
    """A registration under way."""
    headers = r.auth("team", "writer")
    return pool.submit(r.http.post, r.url + "/tools/register", headers=headers, json={**BODY, **change})


def taken(r: RunningRegistry, *, count: int = 1, epoch: int = 1) -> Outbox:
    """What the operator is handed, once `count` entries wait."""
    deadline = time.monotonic() + 30
    while True:
        answer = r.admin("GET", f"/v1/admin/outbox?epoch={epoch}&wait=1")
        assert answer.status_code == 200, answer.text
        found = Outbox.model_validate(answer.json())
        if len(found.entries) >= count:
            return found
        assert time.monotonic() < deadline, found


def tell(r: RunningRegistry, entry_id: str, outcome: str, detail: str = "", epoch: int = 1) -> httpx.Response:
    ack = OutboxAck.model_validate({"id": entry_id, "outcome": outcome, "detail": detail})
    return r.admin("POST", "/v1/admin/outbox", content=OutboxAcks(epoch=epoch, acks=(ack,)).model_dump_json())


def as_published(tool: PublishedTool) -> PublishedTool:
    """The tool as an operator publishes what it created of it."""
    return tool.model_copy(update={"uid": "uid-of-the-api-server", "generation": 1})


def test_a_registration_waits_for_the_operator_and_is_in_the_next_discovery(pool: ThreadPoolExecutor) -> None:
    bot = binding("bot", ["fx:use"], namespace="toolcrib-runtime")
    with running_registry(bindings=[WRITER, bot], registration=True) as r:
        waiting = asked(r, pool, server="rates")
        (entry,) = taken(r).entries
        assert (entry.tool.name, entry.tool.server, entry.tool.namespace) == (
            "fx",
            "rates",
            "toolcrib-runtime",
        )
        assert 0 < entry.seconds <= 10
        assert publishing.manifest(entry.tool)["metadata"]["labels"] == {"toolcrib.dev/source": "runtime"}
        assert tell(r, entry.id, "created").status_code == 200
        assert not waiting.done()  # created is not enough: this replica must show it
        r.publish([as_published(entry.tool)])
        answer = waiting.result(timeout=30)
        listed = [t["name"] for t in r.http.get(r.url, headers=r.auth("team", "bot")).json()["tools"]]
        again = asked(r, pool, server="rates").result(timeout=30)
        left = r.admin("GET", "/v1/admin/outbox?epoch=1").json()

    assert (answer.status_code, answer.json()["message"]) == (200, "Tool 'fx' registered successfully")
    assert listed == ["fx"]
    assert (again.status_code, again.json()["detail"]) == (400, "Tool 'fx' already registered")
    assert left == {"entries": [], "access": []}


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        ("exists", 400, "already_registered"),
        ("refused", 400, "invalid_request"),
        ("failed", 503, "not_durable"),
    ],
)
def test_what_the_operator_says_is_what_the_caller_hears(
    pool: ThreadPoolExecutor, outcome: str, status: int, code: str
) -> None:
    with running_registry(bindings=[WRITER], registration=True) as r:
        waiting = asked(r, pool)
        tell(r, taken(r).entries[0].id, outcome, "for a reason")
        answer = waiting.result(timeout=30)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert outcome == "exists" or answer.json()["detail"] == "for a reason"


def test_without_an_operator_the_caller_is_told_in_time_and_nothing_is_left(
    pool: ThreadPoolExecutor,
) -> None:
    with running_registry(bindings=[WRITER], registration=True, limits=Limits(registration_seconds=0.3)) as r:
        started = time.monotonic()
        answer = asked(r, pool).result(timeout=30)
        took = time.monotonic() - started
        left = r.admin("GET", "/v1/admin/outbox?epoch=1").json()
        entries: tuple[OutboxEntry, ...] = ()
        deadline = time.monotonic() + 30
        while not entries:  # an operator that comes too late for one takes the next
            assert time.monotonic() < deadline
            late = asked(r, pool)
            answered = r.admin("GET", "/v1/admin/outbox?epoch=1&wait=1").json()
            entries = Outbox.model_validate(answered).entries
        entry = entries[0]
        too_late = late.result(timeout=30)
        ignored = tell(r, entry.id, "created")

    assert (answer.status_code, answer.json()["code"], answer.headers["Retry-After"]) == (
        503,
        "not_durable",
        "5",
    )
    assert (
        answer.json()["detail"] == "No operator has taken the registration. Nothing has changed; retry later."
    )
    assert 0.3 <= took < 8, "unless told otherwise it would be ten"
    assert left == {"entries": [], "access": []}
    assert (too_late.status_code, ignored.status_code) == (503, 200)
    assert "may still appear" in too_late.json()["detail"]


def test_no_more_wait_than_there_is_room_for(pool: ThreadPoolExecutor) -> None:
    with running_registry(bindings=[WRITER], registration=True, limits=Limits(registrations=1)) as r:
        first = asked(r, pool)
        entry = taken(r).entries[0]
        second = asked(r, pool, name="other").result(timeout=30)
        tell(r, entry.id, "failed", "away")
        assert first.result(timeout=30).status_code == 503

    assert (second.status_code, second.json()["code"]) == (503, "not_durable")
    assert "Too many" in second.json()["detail"]


def test_of_two_with_one_name_the_operator_sees_one_at_a_time(pool: ThreadPoolExecutor) -> None:
    with running_registry(bindings=[WRITER], registration=True) as r:
        both = [asked(r, pool), asked(r, pool)]
        other = asked(r, pool, name="other")
        wait_until(lambda: len(r.registry.deps.outbox._waiting) == 3)  # type: ignore[union-attr]
        entries = taken(r, count=2).entries
        assert sorted(e.tool.name for e in entries) == ["fx", "other"]
        for entry in entries:
            tell(r, entry.id, "created")
        r.publish([as_published(e.tool) for e in entries])
        (second,) = taken(r).entries
        tell(r, second.id, "exists")
        statuses = sorted(f.result(timeout=30).status_code for f in both)

    assert statuses == [200, 400]
    assert other.result(timeout=30).status_code == 200


def test_what_waits_is_not_handed_out_once_its_caller_has_lost_the_power(pool: ThreadPoolExecutor) -> None:
    with running_registry(bindings=[WRITER], registration=True) as r:
        waiting = [asked(r, pool, name=name) for name in ("fx", "other")]
        wait_until(lambda: len(r.registry.deps.outbox._waiting) == 2)  # type: ignore[union-attr]
        r.publish(remove_bindings=["uid-None-writer"])
        left = r.admin("GET", "/v1/admin/outbox?epoch=1").json()
        answers = [w.result(timeout=30) for w in waiting]

    assert left == {"entries": [], "access": []}
    assert [(a.status_code, a.json()["code"]) for a in answers] == [(403, "not_permitted")] * 2


def test_what_the_operator_has_is_not_handed_out_again_once_its_caller_has_lost_the_power(
    pool: ThreadPoolExecutor,
) -> None:
    with running_registry(bindings=[WRITER], registration=True) as r:
        waiting = asked(r, pool)
        entry = taken(r).entries[0]
        r.publish(remove_bindings=["uid-None-writer"])
        left = r.admin("GET", "/v1/admin/outbox?epoch=1").json()
        tell(r, entry.id, "failed", "for a reason")
        answer = waiting.result(timeout=30)

    assert left == {"entries": [], "access": []}
    assert (answer.status_code, answer.json()["detail"]) == (503, "for a reason"), "it may have been created"


def test_a_lost_answer_does_not_make_a_duplicate_of_ones_own_tool(pool: ThreadPoolExecutor) -> None:
    with running_registry(bindings=[WRITER], registration=True) as r:
        waiting = asked(r, pool)
        first = taken(r).entries[0]
        r.publish([as_published(first.tool)])  # it was created, and then the operator was gone
        second = taken(r).entries[0]
        assert second.id == first.id
        tell(r, second.id, "exists")
        answer = waiting.result(timeout=30)

    assert answer.status_code == 200


def test_an_operator_that_no_longer_leads_gets_and_says_nothing(pool: ThreadPoolExecutor) -> None:
    with running_registry(bindings=[WRITER], registration=True) as r:
        old = pool.submit(r.admin, "GET", "/v1/admin/outbox?epoch=1&wait=5")
        assert r.admin("GET", "/v1/admin/outbox?epoch=2").json() == {"entries": [], "access": []}
        waiting = asked(r, pool)
        entry = taken(r, epoch=2).entries[0]
        refused = tell(r, entry.id, "created", epoch=1)
        tell(r, entry.id, "failed", "away", epoch=2)
        assert waiting.result(timeout=30).status_code == 503
        at_once = r.admin("GET", "/v1/admin/outbox?epoch=1&wait=5")
        polled = old.result(timeout=30)
        assert r.registry.deps.state.snapshot.revision == Revision(epoch=1, seq=1)

    assert [(a.status_code, a.json()["code"]) for a in (refused, at_once)] == [(409, "epoch_fenced")] * 2
    # it asked while it led, and was still waiting when it did not any more
    assert (polled.status_code, polled.json().get("code")) == (409, "epoch_fenced")


def test_an_operator_that_has_hung_up_is_handed_nothing(pool: ThreadPoolExecutor) -> None:
    limits = Limits(registration_seconds=0.5)
    with running_registry(bindings=[WRITER], registration=True, limits=limits) as r:
        with pytest.raises(httpx.ReadTimeout):
            r.admin("GET", "/v1/admin/outbox?epoch=1&wait=10", timeout=0.2)
        answer = asked(r, pool).result(timeout=30)

    assert (
        answer.json()["detail"] == "No operator has taken the registration. Nothing has changed; retry later."
    )


def test_the_outbox_is_for_the_operator_alone() -> None:
    with running_registry(bindings=[WRITER], registration=True) as r:
        path = r.admin_url + "/v1/admin/outbox?epoch=1"
        agent = r.http.get(path, headers=r.auth("team", "writer"))
        elsewhere = r.http.get(r.url + "/v1/admin/outbox?epoch=1", headers=r.admin_auth())
        bad = r.admin("GET", "/v1/admin/outbox?epoch=1&wait=3600")

    assert (agent.status_code, elsewhere.status_code, bad.status_code) == (401, 401, 400)


def test_stopping_ends_those_who_wait(pool: ThreadPoolExecutor) -> None:
    with running_registry(bindings=[WRITER], registration=True) as r:
        waiting = asked(r, pool)
        taken(r)
        tell(r, "nobody", "created")
        started = time.monotonic()
    assert waiting.result(timeout=30).status_code == 503
    assert time.monotonic() - started < 5
