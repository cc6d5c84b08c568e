"""A rolling upgrade: replicas of this version while an operator of an earlier one still leads (decision 0046)."""

import hashlib

import httpx

from registry_harness import ManualClock, RunningRegistry, binding, running_registry, tool
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import Heartbeat, Publish, PublishedTool, Revision, SnapshotChunk, SnapshotCommit
from toolcrib_registry.policy.leader import PATIENCE, RECHECK

SERVICE = PublishedBackend(service_namespace="team", service_name="tools", service_port=80)
WAITING = tool("calculator", backend=SERVICE)
ADDRESSED = tool("calculator", backend=SERVICE.model_copy(update={"cluster_ip": "10.96.0.17"}))


class EarlierOperator:
    """Sends everything in one body, names hashes of another form, and sends everything again where one is refused."""

    def __init__(self, replica: RunningRegistry) -> None:
        self.replica = replica
        self.tools: dict[str, PublishedTool] = {}
        self.seq = self.fulls = 0

    def full(self) -> None:
        self.fulls += 1
        self._send(None, tuple(self.tools.values()))

    def step(self, *tools: PublishedTool) -> None:
        self.tools |= {t.tool_id: t for t in tools}
        base, self.seq = Revision(epoch=1, seq=self.seq), self.seq + 1
        self._send(base, tools)

    def _send(self, base: Revision | None, tools: tuple[PublishedTool, ...]) -> None:
        body = Publish(base=base, to=Revision(epoch=1, seq=self.seq), tools=tools).model_dump_json()
        assert self.replica.admin("POST", "/v1/admin/publish", content=body).status_code == 200

    def beat(self) -> httpx.Response:
        hash_ = hashlib.sha256(repr(sorted(self.tools.items())).encode()).hexdigest()
        body = Heartbeat(revision=Revision(epoch=1, seq=self.seq), hash=hash_).model_dump_json()
        answer = self.replica.admin("POST", "/v1/admin/heartbeat", content=body)
        if answer.status_code == 409:
            assert answer.json()["code"] == "revision_mismatch"
            self.full()
        return answer


def test_hashes_of_another_form_cost_one_more_snapshot_and_none_at_every_heartbeat() -> None:
    clock = ManualClock()
    with running_registry(publish=False, clock=clock) as r:
        leader = EarlierOperator(r)
        leader.full()
        for _ in range(20):
            leader.beat()
            clock.advance(10)
        at_rest = leader.fulls
        for i in range(20):
            leader.step(tool(f"t{i}"))
            leader.beat()
            clock.advance(10)
        busy = leader.fulls - at_rest
        for _ in range(20):
            leader.beat()
            clock.advance(10)

    assert at_rest == 2
    assert busy <= 20 * 10 / RECHECK + 1
    assert leader.fulls - at_rest - busy <= 1


def test_a_leader_whose_content_is_another_is_believed_only_after_it_has_sent_everything() -> None:
    clock = ManualClock()
    with running_registry([tool("calculator")], clock=clock) as r:
        leader = EarlierOperator(r)
        leader.seq = 1
        leader.tools = {"team/other": tool("other")}
        refused = [leader.beat().status_code]
        held = set(r.registry.deps.state.snapshot.tools)
        accepted = leader.beat().status_code

    assert refused == [409]
    assert held == {"team/other"}
    assert accepted == 200


def test_a_heartbeat_that_is_refused_is_no_sign_of_life_and_one_of_another_form_is() -> None:
    clock = ManualClock()
    with running_registry([tool("calculator")], clock=clock) as r:
        state = r.registry.deps.state
        leader = EarlierOperator(r)
        leader.seq = 1
        clock.advance(100)
        body = Heartbeat(revision=Revision(epoch=1, seq=1), hash="0" * 64).model_dump_json()
        r.admin("POST", "/v1/admin/heartbeat", content=body)
        refused = state.policy_age()
        leader.beat()
        leader.full()
        clock.advance(50)
        leader.beat()
        accepted = state.policy_age()

    assert refused == 100
    assert accepted == 0


def readiness(r: RunningRegistry) -> tuple[int, bool]:
    answer = r.http.get(r.admin_url + "/readyz")
    return answer.status_code, answer.json()["parts"]["addresses"]["ready"]


def test_a_new_replica_leaves_traffic_to_others_until_a_leader_publishes_addresses() -> None:
    with running_registry([WAITING], [binding("bot")], clock=ManualClock()) as r:
        waiting = readiness(r)
        listed = r.http.get(r.url, headers=r.auth("team", "bot")).json()["total_available"]
        to = Revision(epoch=2, seq=1)
        body = SnapshotChunk(to=to, stage="a" * 32, number=0, tools=(ADDRESSED,)).model_dump_json().encode()
        r.admin("POST", "/v1/admin/snapshot/chunks", content=body)
        commit = SnapshotCommit(to=to, stage="a" * 32, chunks=1, digest=hashlib.sha256(body).hexdigest())
        r.admin("POST", "/v1/admin/snapshot/commit", content=commit.model_dump_json())
        ready = readiness(r)
        # rolled back: what this replica once served it goes on serving
        back = Publish(to=Revision(epoch=3, seq=1), tools=(WAITING,)).model_dump_json()
        r.admin("POST", "/v1/admin/publish", content=back)
        after = readiness(r)

    assert waiting == (503, False)
    assert listed == 1  # who asks it all the same is answered
    assert ready == after == (200, True)


def test_a_new_replica_waits_for_addresses_two_minutes_at_most() -> None:
    clock = ManualClock()
    with running_registry([WAITING], clock=clock) as r:
        clock.advance(PATIENCE - 1)
        waiting = readiness(r)
        clock.advance(1)
        after = readiness(r)

    assert waiting == (503, False)
    assert after == (200, True)


def test_a_service_that_a_current_leader_has_no_address_of_keeps_no_replica_from_being_ready() -> None:
    with running_registry(publish=False) as r:
        to = Revision(epoch=1, seq=1)
        body = SnapshotChunk(to=to, stage="a" * 32, number=0, tools=(WAITING,)).model_dump_json().encode()
        r.admin("POST", "/v1/admin/snapshot/chunks", content=body)
        commit = SnapshotCommit(to=to, stage="a" * 32, chunks=1, digest=hashlib.sha256(body).hexdigest())
        r.admin("POST", "/v1/admin/snapshot/commit", content=commit.model_dump_json())
        assert readiness(r) == (200, True)


def test_tools_that_need_no_published_address_keep_no_replica_from_being_ready() -> None:
    by_url = tool("by-url", backend=PublishedBackend(url="https://tools.example/x"))
    for tools, backends in (([by_url, tool("none")], {}), ([WAITING], {"team/tools": "127.0.0.1:9"})):
        with running_registry(tools, clock=ManualClock(), backends=backends) as r:
            assert readiness(r) == (200, True)


def test_a_heartbeat_may_say_what_earlier_operators_said_in_it() -> None:
    with running_registry([tool("calculator")]) as r:
        state = r.registry.deps.state
        beat = Heartbeat(revision=state.snapshot.revision, hash=state.snapshot.hash)
        body = beat.model_dump(mode="json") | {"indexer": True}
        answer = r.admin("POST", "/v1/admin/heartbeat", json=body)

    assert answer.status_code == 200, answer.text
