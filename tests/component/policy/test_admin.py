"""The admin channel: who is let in, what a publish does, what keeps policy fresh."""

import pytest

from registry_harness import OPERATOR, ManualClock, binding, running_registry, tool
from toolcrib.errors import EpochFenced
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import Credentials, Heartbeat, Publish, Revision
from toolcrib_registry.adapters.counters.memory import MemoryCounters
from toolcrib_registry.adapters.embedded.store import EmbeddedStore
from toolcrib_registry.limits.counters import CountersUnavailable
from toolcrib_registry.policy.state import PolicyState
from toolcrib_registry.search.errors import StoreUnavailable


def step(base: tuple[int, int] | None, to: tuple[int, int], age: float = 0.0) -> str:
    made = Publish(
        base=None if base is None else Revision(epoch=base[0], seq=base[1]),
        to=Revision(epoch=to[0], seq=to[1]),
        age=age,
    )
    return made.model_dump_json()


def test_only_admin_subjects_with_the_admin_audience_get_in() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        state = r.admin_url + "/v1/admin/state"
        agents = r.auth("toolcrib-system", "toolcrib-operator")
        powerful = r.auth("team", "bot", scopes="registry:admin registry:write")
        answers = {
            "operator": r.http.get(state, headers=r.admin_auth()),
            "nobody": r.http.get(state),
            "wrong audience": r.http.get(state, headers=agents),
            "scopes": r.http.get(state, headers=powerful),
            "another subject": r.http.get(state, headers=r.admin_auth("system:serviceaccount:team:bot")),
        }
        with_admin_token = r.http.get(r.url, headers=r.admin_auth()).json()
        elsewhere = r.http.get(r.url + "/v1/admin/state", headers=r.admin_auth())
        elsewhere_too = [r.http.get(url + "/metrics") for url in (r.url, r.admin_url)]
        metrics = r.http.get(r.metrics_url + "/metrics")
        not_there = [r.http.get(r.metrics_url + path) for path in ("/", "/v1/admin/state", "/readyz")]

    assert {k: v.status_code for k, v in answers.items()} == {
        "operator": 200,
        "nobody": 401,
        "wrong audience": 401,
        "scopes": 401,
        "another subject": 403,
    }
    assert with_admin_token["authenticated"] is False
    assert elsewhere.status_code == 401  # the agents' listener has no admin routes and another audience
    assert metrics.status_code == 200
    assert "toolcrib_catalog_tools 1.0" in metrics.text
    # of the three listeners that of metrics has nothing else, and the others have none
    assert [answer.status_code for answer in (*elsewhere_too, *not_there)] == [404] * 5


def test_a_publish_that_does_not_continue_is_answered_with_what_is_here() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        before = r.admin("GET", "/v1/admin/state").json()
        gap = r.admin("POST", "/v1/admin/publish", content=step((1, 7), (1, 8)))
        older = r.admin("POST", "/v1/admin/publish", content=step(None, (0, 9)))
        after = r.admin("GET", "/v1/admin/state").json()
        still = r.http.get(r.url, headers=r.auth("team", "bot")).json()["total_available"]

    # without it a newer operator would have this replica deny whole namespaces
    assert before["features"] == [
        "deny_scopes",
        "snapshot_chunks",
        "mcp_backends",
        "quarantine",
        "server_imports",
        "placed_arguments",
        "backend_oauth",
        "token_services",
        "call_confirmation",
    ]
    assert (gap.status_code, gap.json()["code"]) == (409, "revision_mismatch")
    assert gap.json()["state"] == before == after
    assert (older.status_code, older.json()["code"]) == (409, "epoch_fenced")
    assert still == 1


def test_a_heartbeat_of_another_content_or_an_old_leader_is_refused() -> None:
    with running_registry([tool("calculator")]) as r:
        good = r.heartbeat()
        state = r.admin("GET", "/v1/admin/state").json()
        wrong = Heartbeat(revision=Revision(epoch=1, seq=1), hash="0" * 64)
        mismatch = r.admin("POST", "/v1/admin/heartbeat", content=wrong.model_dump_json())
        takeover = Heartbeat(revision=Revision(epoch=3, seq=1), hash=state["hash"])
        r.admin("POST", "/v1/admin/heartbeat", content=takeover.model_dump_json())
        fenced = r.heartbeat()

    assert good.status_code == 200
    assert mismatch.json()["code"] == "revision_mismatch"
    assert fenced.json()["code"] == "epoch_fenced"


def test_what_an_old_leader_sends_after_another_was_heard_changes_nothing() -> None:
    """The new one has said that it leads, and nothing else yet: what the old one sends would continue what is here."""
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        state = r.admin("GET", "/v1/admin/state").json()
        takeover = Heartbeat(revision=Revision(epoch=3, seq=1), hash=state["hash"])
        r.admin("POST", "/v1/admin/heartbeat", content=takeover.model_dump_json())
        grant = Publish(
            base=Revision(epoch=1, seq=1), to=Revision(epoch=1, seq=2), bindings=(binding("late"),)
        )
        published = r.admin("POST", "/v1/admin/publish", content=grant.model_dump_json())
        secrets = r.admin("POST", "/v1/admin/credentials", content=Credentials(epoch=1).model_dump_json())
        after = r.admin("GET", "/v1/admin/state").json()
        seen = r.http.get(r.url, headers=r.auth("team", "late")).json()["total_available"]

    for answer in (published, secrets):
        assert (answer.status_code, answer.json()["code"]) == (409, "epoch_fenced")
    assert after == state
    assert seen == 0


@pytest.mark.anyio
async def test_a_publish_that_another_leader_overtakes_while_it_is_worked_out_is_not_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = PolicyState(ManualClock())
    await state.publish(Publish(to=Revision(epoch=1, seq=1), tools=(tool("calculator"),)))
    before, real = state.snapshot, Snapshot.apply

    def overtaken(self: Snapshot, publish: Publish) -> Snapshot:
        found = real(self, publish)
        state.fence(2)
        return found

    monkeypatch.setattr(Snapshot, "apply", overtaken)
    step = Publish(base=Revision(epoch=1, seq=1), to=Revision(epoch=1, seq=2), bindings=(binding("late"),))
    with pytest.raises(EpochFenced):
        await state.publish(step)

    assert state.snapshot is before


def test_without_a_leader_for_long_calls_are_refused_and_readiness_says_so() -> None:
    clock = ManualClock()
    with running_registry([tool("calculator")], [binding("bot")], clock=clock, policy_max_age=900.0) as r:
        fresh = r.http.get(r.url + "/readyz")
        clock.advance(901)
        headers = r.auth("team", "bot")
        stale = r.http.get(r.url + "/readyz")
        call = r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "calculator"})
        forbidden = r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "other"})
        listed = r.http.get(r.url, headers=headers).json()["total_available"]
        r.heartbeat()
        again = r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "calculator"})

    assert fresh.status_code == 200
    assert stale.status_code == 503
    assert "policy_stale" in stale.json()["parts"]["policy"]["detail"]
    assert (call.status_code, call.json()["code"]) == (503, "policy_stale")
    assert call.headers["retry-after"] == "10"
    assert forbidden.status_code == 403
    assert listed == 1
    assert again.json()["code"] == "no_backend"


def test_after_the_last_heartbeat_the_policy_ages_again() -> None:
    clock = ManualClock()
    with running_registry([tool("calculator")], [binding("bot")], clock=clock, policy_max_age=900.0) as r:
        r.heartbeat()
        headers = r.auth("team", "bot")
        clock.advance(899)
        fresh = r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "calculator"})
        clock.advance(2)
        stale = r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "calculator"})

    assert fresh.json()["code"] == "no_backend"
    assert (stale.status_code, stale.json()["code"]) == (503, "policy_stale")


def test_a_publish_of_a_leader_that_cannot_prove_its_view_is_no_sign_of_life() -> None:
    """It may have missed a revocation: what it knows comes in force, and the policy goes on ageing."""
    clock = ManualClock()
    with running_registry([tool("calculator")], [binding("bot")], clock=clock, policy_max_age=900.0) as r:
        clock.advance(890)
        state = r.admin("GET", "/v1/admin/state").json()["revision"]
        here, there = (state["epoch"], state["seq"]), (state["epoch"], state["seq"] + 1)
        unproven = step(here, there, age=890.0)
        applied = r.admin("POST", "/v1/admin/publish", content=unproven)
        clock.advance(20)
        headers = r.auth("team", "bot")
        call = r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "calculator"})

    assert applied.status_code == 200
    assert (call.status_code, call.json()["code"]) == (503, "policy_stale")


def test_a_replica_is_not_ready_before_a_full_snapshot() -> None:
    with running_registry(publish=False) as r:
        before = r.http.get(r.url + "/readyz")
        alive = r.http.get(r.url + "/healthz")
        r.publish()
        after = r.http.get(r.url + "/readyz")

    assert (before.status_code, alive.status_code, after.status_code) == (503, 200, 200)


def test_a_tool_is_indexed_when_it_was_read_back_and_a_stale_entry_looks_stale() -> None:
    with running_registry([tool("calculator"), tool("echo")]) as r:
        digests = {t.tool_id: t.digest for t in (tool("calculator"), tool("echo"))}
        request = {"epoch": 1, "upsert": ["team/calculator", "team/echo", "team/gone"], "remove": []}
        answer = r.admin("POST", "/v1/admin/index", json=request).json()
        full = r.admin("GET", "/v1/admin/index").json()["tools"]
        r.publish([tool("echo", scopes=("other:use",))])
        changed = r.admin("GET", "/v1/admin/index").json()["tools"]
        r.admin("POST", "/v1/admin/index", json={"epoch": 1, "remove": ["team/calculator"]})
        removed = r.admin("GET", "/v1/admin/index").json()["tools"]
        fenced = r.admin("POST", "/v1/admin/index", json={"epoch": 0})

    assert answer["indexed"] == digests
    assert list(answer["failed"]) == ["team/gone"]
    assert full == digests
    assert changed["team/calculator"] == digests["team/calculator"]
    assert changed["team/echo"] != digests["team/echo"]  # its scopes changed: the index must follow
    assert list(removed) == ["team/echo"]
    assert fenced.json()["code"] == "epoch_fenced"


def test_agents_are_not_told_what_the_parts_inside_said_and_the_admin_listener_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(self: EmbeddedStore) -> None:
        raise StoreUnavailable("connect to weaviate.internal:50051 refused")

    async def lost(self: MemoryCounters) -> None:
        raise CountersUnavailable("redis.internal:6379 hangs")

    monkeypatch.setattr(EmbeddedStore, "healthy", away)
    monkeypatch.setattr(MemoryCounters, "healthy", lost)
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        agents, admin = (r.http.get(url + "/readyz") for url in (r.url, r.admin_url))
    with running_registry([tool("calculator")], [binding("bot")], one_port=True) as r:
        local = r.http.get(r.url + "/readyz")

    for answer in (agents, admin, local):
        parts = answer.json()["parts"]
        assert (answer.status_code, parts["search"]["ready"], parts["limits"]["ready"]) == (200, False, False)
        assert parts["search"]["detail"].startswith("index_unavailable")
        assert parts["limits"]["detail"].startswith("limits_unavailable")
    assert "weaviate.internal:50051" in admin.text
    assert "redis.internal:6379" in admin.text
    assert "internal" not in agents.text + local.text


def test_on_one_port_all_are_there_and_the_host_is_checked_for_both() -> None:
    with running_registry([tool("calculator")], [binding("bot")], one_port=True) as r:
        assert r.http.get(r.url + "/metrics").status_code == 200
        assert r.http.get(r.url, headers=r.auth("team", "bot")).json()["total_available"] == 1
        assert r.http.get(r.url + "/metrics", headers={"Host": "evil.example"}).status_code == 421
        assert r.admin("GET", "/v1/admin/state", headers={"Origin": "http://evil.example"}).status_code == 403
        assert r.http.get(r.url + "/v1/admin/state", headers=r.auth("team", "bot")).status_code == 401
        assert r.admin_auth(OPERATOR)


def test_of_several_request_ids_the_last_counts_on_both_listeners() -> None:
    given = [("X-Request-Id", "callers-1"), ("X-Request-Id", "proxys-1")]
    with running_registry([tool("calculator")]) as r:
        for url in (r.url + "/health", r.admin_url + "/healthz"):
            assert r.http.get(url, headers=given).headers.get_list("x-request-id") == ["proxys-1"]
