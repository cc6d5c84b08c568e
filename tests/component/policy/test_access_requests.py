"""Access requests, the registry's side: what waits for the operator, and what a caller learns of a tool it does not see."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib.wire.outbox import AccessEntry, Outbox, OutboxAck, OutboxAcks
from toolcrib_registry.settings_limits import Limits

HACKER = binding("hacker", ["calculator:use"])
TOOLS = [tool("calculator"), tool("secret")]
HIDDEN, ABSENT = "team/secret", "team/absent"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def ask(
    r: RunningRegistry, tool_id: str, why: str = "to see", account: str = "hacker", namespace: str = "team"
) -> httpx.Response:
    body = {"tool_id": tool_id, "why": why}
    return r.http.post(r.url + "/v1/access-requests", headers=r.auth(namespace, account), json=body)


def taken(r: RunningRegistry, count: int = 1) -> tuple[AccessEntry, ...]:
    """What the operator is handed, once `count` requests wait."""
    deadline = time.monotonic() + 30
    while True:
        answer = r.admin("GET", "/v1/admin/outbox?epoch=1&wait=1")
        found = Outbox.model_validate(answer.json()).access
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, found


def tell(r: RunningRegistry, entry: AccessEntry, outcome: str, detail: str = "") -> None:
    ack = OutboxAck.model_validate({"id": entry.id, "outcome": outcome, "detail": detail})
    told = r.admin("POST", "/v1/admin/outbox", content=OutboxAcks(epoch=1, acks=(ack,)).model_dump_json())
    assert told.status_code == 200, told.text


def test_the_operator_is_told_who_asks_by_the_verified_token_and_the_caller_gets_the_requests_name(
    pool: ThreadPoolExecutor,
) -> None:
    with running_registry(TOOLS, [HACKER]) as r:
        waits = pool.submit(ask, r, HIDDEN, "to see\u202e it")
        (entry,) = taken(r)
        assert (entry.tool_id, entry.why) == (HIDDEN, "to see\u202e it")
        assert (entry.subject.kind, entry.subject.namespace, entry.subject.name) == (
            "ServiceAccount", "team", "hacker",
        )  # fmt: skip
        tell(r, entry, "created", "team/secret-1")
        answer = waits.result(30)
        assert (answer.status_code, answer.json()) == (200, {"request": "team/secret-1", "state": "open"})


def test_a_hidden_and_an_absent_tool_take_the_same_way_and_get_the_same_answer(
    pool: ThreadPoolExecutor,
) -> None:
    with running_registry(TOOLS, [HACKER]) as r:
        answers = []
        for tool_id in (HIDDEN, ABSENT):
            waits = pool.submit(ask, r, tool_id)
            (entry,) = taken(r)
            tell(r, entry, "absent")
            answers.append(waits.result(30))
        hidden, absent = answers
        assert hidden.status_code == absent.status_code == 404
        assert hidden.content.replace(b"secret", b"absent") == absent.content
        assert set(hidden.headers) == set(absent.headers)
        assert hidden.headers["content-length"] == absent.headers["content-length"]


def test_what_was_made_of_it_is_a_status(pool: ThreadPoolExecutor) -> None:
    with running_registry(TOOLS, [HACKER]) as r:
        for outcome, expected in (
            ("exists", (200, None)),
            ("full", (429, "too_many_requests")),
            ("refused", (404, "tool_not_found")),
            ("failed", (503, "requests_unavailable")),
        ):
            waits = pool.submit(ask, r, HIDDEN)
            (entry,) = taken(r)
            tell(r, entry, outcome, "team/secret-1")
            answer = waits.result(30)
            assert (answer.status_code, answer.json().get("code")) == expected


def test_what_the_caller_has_needs_no_request_and_bad_ones_reach_nobody() -> None:
    with running_registry(TOOLS, [HACKER], limits=Limits(registration_seconds=0.3)) as r:
        has = ask(r, "team/calculator")
        assert (has.status_code, has.json()["code"]) == (409, "already_granted")
        for body in (
            {},
            {"tool_id": HIDDEN},
            {"tool_id": HIDDEN, "why": ""},
            {"tool_id": HIDDEN, "why": "x" * 281},
        ):
            answer = r.http.post(r.url + "/v1/access-requests", headers=r.auth("team", "hacker"), json=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        nobody = r.http.post(r.url + "/v1/access-requests", json={"tool_id": HIDDEN, "why": "x"})
        assert nobody.status_code == 401
        assert r.admin("GET", "/v1/admin/outbox?epoch=1").json() == {"entries": [], "access": []}


def test_without_an_operator_it_waits_ends_with_503_and_leaves_nothing() -> None:
    with running_registry(TOOLS, [HACKER], limits=Limits(registration_seconds=0.5)) as r:
        began = time.monotonic()
        answer = ask(r, HIDDEN)
        assert (answer.status_code, answer.json()["code"]) == (503, "requests_unavailable")
        assert 0.5 <= time.monotonic() - began < 10
        assert r.admin("GET", "/v1/admin/outbox?epoch=1").json() == {"entries": [], "access": []}


def test_a_flood_of_one_caller_holds_three_places_and_no_more(pool: ThreadPoolExecutor) -> None:
    with running_registry(TOOLS, [HACKER]) as r:
        waits: list[Future[httpx.Response]] = [pool.submit(ask, r, f"team/t{n}") for n in range(3)]
        entries = taken(r, 3)
        flood = [ask(r, f"team/f{n}") for n in range(10)]
        assert {(a.status_code, a.json()["code"]) for a in flood} == {(429, "too_many_requests")}
        other = pool.submit(ask, r, HIDDEN, "to see", "planner")
        (mine,) = (e for e in taken(r, 4) if e.subject.name == "planner")
        tell(r, mine, "created", "team/secret-1")
        assert other.result(30).status_code == 200
        for entry in entries:
            tell(r, entry, "absent")
        assert [w.result(30).status_code for w in waits] == [404] * 3


def test_many_accounts_of_one_namespace_leave_half_of_the_places_to_others(
    pool: ThreadPoolExecutor,
) -> None:
    with running_registry(TOOLS, [HACKER], limits=Limits(registrations=4)) as r:
        waits = [pool.submit(ask, r, HIDDEN, account=f"bot-{n}") for n in range(2)]
        taken(r, 2)
        refused = ask(r, HIDDEN, account="bot-2")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert refused.json()["detail"].startswith("Too many access requests of your namespace")
        waits.append(pool.submit(ask, r, HIDDEN, namespace="other"))
        for entry in taken(r, 3):
            tell(r, entry, "created", "team/secret-1")
        assert [wait.result(30).status_code for wait in waits] == [200] * 3


def test_a_suspended_caller_is_answered_by_the_same_way_and_asks_for_nothing(
    pool: ThreadPoolExecutor,
) -> None:
    suspension = binding(
        "hacker", [], name="agent", kind="Agent", namespaces=None, deny=("*",), suspends=True
    )
    with running_registry(TOOLS, [HACKER, suspension]) as r:
        waits = pool.submit(ask, r, HIDDEN)
        (entry,) = taken(r)
        assert entry.tool_id == ""
        tell(r, entry, "absent")
        answer = waits.result(30)
        assert (answer.status_code, answer.json()["code"]) == (404, "tool_not_found")
        assert HIDDEN in answer.json()["detail"]
