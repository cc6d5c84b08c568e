"""A full snapshot in chunks: staged apart, swapped in whole or not at all (decision 0046)."""

import gc
import hashlib
import time
from collections.abc import Sequence

import httpx
import pytest

from registry_harness import (
    ManualClock,
    RunningRegistry,
    binding,
    running_registry,
    tool,
)
from toolcrib import process
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import (
    Heartbeat,
    Publish,
    PublishedAccount,
    PublishedTool,
    Revision,
    SnapshotChunk,
    SnapshotCommit,
)
from toolcrib_operator.replicas.transfer import CHUNK_BYTES as CHUNK_AIM
from toolcrib_registry.http.route_table import CHUNK_BYTES
from toolcrib_registry.policy.staging import Staging
from toolcrib_registry.policy.state import PolicyState
from waiting import until

NEXT = Revision(epoch=1, seq=2)
STAGE, OTHER = "a" * 32, "b" * 32
GRANT = binding("bot", ("one:use", "two:use"))


def chunk(number: int, *tools: PublishedTool, to: Revision = NEXT, stage: str = STAGE) -> bytes:
    bindings = (GRANT,) if number == 0 else ()
    made = SnapshotChunk(to=to, stage=stage, number=number, tools=tools, bindings=bindings)
    return made.model_dump_json().encode()


def commit_of(
    bodies: Sequence[bytes], *, to: Revision = NEXT, stage: str = STAGE, age: float = 0.0
) -> SnapshotCommit:
    digest = hashlib.sha256(b"".join(bodies)).hexdigest()
    return SnapshotCommit(to=to, stage=stage, chunks=len(bodies), digest=digest, age=age)


def send(r: RunningRegistry, body: bytes) -> httpx.Response:
    return r.admin("POST", "/v1/admin/snapshot/chunks", content=body)


def finish(r: RunningRegistry, commit: SnapshotCommit) -> httpx.Response:
    return r.admin("POST", "/v1/admin/snapshot/commit", content=commit.model_dump_json())


def listed(r: RunningRegistry) -> list[str]:
    return [t["name"] for t in r.http.get(r.url, headers=r.auth("team", "bot")).json()["tools"]]


BODIES = [chunk(0, tool("one")), chunk(1, tool("two"))]


def test_the_chunks_take_effect_together_at_the_commit_and_are_the_whole_snapshot() -> None:
    with running_registry([tool("gone", scopes=("one:use",))], [GRANT]) as r:
        seen = []
        for body in BODIES:
            assert send(r, body).json()["revision"] == {"epoch": 1, "seq": 1}
            seen.append(listed(r))
        answer = finish(r, commit_of(BODIES))
        after = listed(r)

    whole = Publish(to=NEXT, tools=(tool("one"), tool("two")), bindings=(GRANT,))
    assert seen == [["gone"], ["gone"]]
    assert after == ["one", "two"]
    assert (answer.status_code, answer.json()["revision"]) == (200, {"epoch": 1, "seq": 2})
    assert answer.json()["hash"] == Snapshot().apply(whole).hash


def test_a_replica_that_has_just_started_is_ready_after_the_commit_and_not_before() -> None:
    with running_registry(publish=False) as r:
        for body in BODIES:
            send(r, body)
        before = r.http.get(r.url + "/readyz").status_code
        finish(r, commit_of(BODIES))
        after = r.http.get(r.url + "/readyz").status_code

    assert (before, after) == (503, 200)


@pytest.mark.parametrize(
    ("bodies", "commit"),
    [
        (BODIES[:1], commit_of(BODIES)),
        (BODIES, commit_of(BODIES[:1])),
        (BODIES, commit_of([BODIES[0], chunk(1, tool("other"))])),
        (BODIES, commit_of(BODIES, stage=OTHER)),
        (BODIES, commit_of(BODIES, to=Revision(epoch=1, seq=3))),
        ([], commit_of(BODIES)),
    ],
    ids=[
        "a chunk is missing",
        "one too many",
        "another digest",
        "another stage",
        "another revision",
        "nothing",
    ],
)
def test_a_commit_of_anything_but_what_is_staged_changes_nothing(
    bodies: list[bytes], commit: SnapshotCommit
) -> None:
    with running_registry([tool("one")], [GRANT]) as r:
        before = r.admin("GET", "/v1/admin/state").json()
        for body in bodies:
            send(r, body)
        answer = finish(r, commit)
        after = r.admin("GET", "/v1/admin/state").json()

    assert (answer.status_code, answer.json()["code"]) == (409, "revision_mismatch")
    assert after == before


@pytest.mark.parametrize(
    "late",
    [
        chunk(2, tool("x")),
        chunk(0 + 1, tool("x"), stage=OTHER),
        chunk(1, tool("x"), to=Revision(epoch=1, seq=9)),
    ],
    ids=["a gap", "another stage", "another revision"],
)
def test_a_chunk_that_continues_something_else_is_refused_and_the_stage_goes_on(late: bytes) -> None:
    with running_registry([tool("gone")], [GRANT]) as r:
        send(r, BODIES[0])
        refused = send(r, late)
        send(r, BODIES[1])
        finish(r, commit_of(BODIES))
        after = listed(r)

    assert (refused.status_code, refused.json()["code"]) == (409, "revision_mismatch")
    assert after == ["one", "two"]


def test_a_newer_begin_replaces_a_stage() -> None:
    with running_registry([tool("gone")], [GRANT]) as r:
        send(r, BODIES[0])
        again = [chunk(0, tool("two"), stage=OTHER)]
        send(r, again[0])
        old = send(r, BODIES[1])
        finish(r, commit_of(again, stage=OTHER))
        after = listed(r)

    assert old.json()["code"] == "revision_mismatch"
    assert after == ["two"]


def test_an_old_leader_can_neither_add_to_the_stage_of_a_new_one_nor_commit_its_own() -> None:
    """The old one has staged everything when the new one begins; both know how many chunks there are, and their digest."""
    later = Revision(epoch=2, seq=1)
    ours = [chunk(0, tool("one"), to=later, stage=OTHER), chunk(1, to=later, stage=OTHER)]
    with running_registry([tool("gone")], [GRANT]) as r:
        for body in BODIES:
            send(r, body)
        send(r, ours[0])
        refused = [
            send(r, chunk(1, tool("two"))),
            send(r, chunk(0, tool("two"))),
            send(r, chunk(1, tool("two"), stage=OTHER)),
            finish(r, commit_of(BODIES)),
        ]
        send(r, ours[1])
        finish(r, commit_of(ours, to=later, stage=OTHER))
        after = listed(r)

    assert {(a.status_code, a.json()["code"]) for a in refused} == {(409, "epoch_fenced")}
    assert after == ["one"]


def test_a_leader_that_is_only_heard_ends_the_stage_of_an_older_one() -> None:
    with running_registry([tool("gone", scopes=("one:use",))], [GRANT]) as r:
        for body in BODIES:
            send(r, body)
        beat = Heartbeat(revision=Revision(epoch=2, seq=1), hash="0" * 64)
        r.admin("POST", "/v1/admin/heartbeat", content=beat.model_dump_json())
        refused = finish(r, commit_of(BODIES))
        after = listed(r)

    assert refused.json()["code"] == "epoch_fenced"
    assert after == ["gone"]


def test_steps_go_on_while_a_snapshot_is_staged_and_a_snapshot_that_is_older_by_then_is_refused() -> None:
    with running_registry([tool("one")], [GRANT]) as r:
        for body in BODIES:
            send(r, body)
        r.publish([tool("two")])
        r.publish([tool("three", scopes=("one:use",))])
        refused = finish(r, commit_of(BODIES))
        after = listed(r)

    assert refused.json()["code"] == "revision_mismatch"
    assert after == ["one", "three", "two"]


def test_what_a_stage_may_hold_is_bounded_and_too_much_of_it_is_dropped() -> None:
    large = [tool(f"t{i}", description="x" * 300_000) for i in range(4)]
    with running_registry([tool("one")], [GRANT], limits={"admin_body_bytes": 1 << 20}) as r:
        staged = [send(r, chunk(i, t)).status_code for i, t in enumerate(large)]
        held = r.registry.deps.staging.size
        after = listed(r)

    assert staged == [200, 200, 200, 413]
    assert held == 0
    assert after == ["one"]


def test_one_chunk_has_a_bound_of_its_own_below_that_of_other_bodies() -> None:
    with running_registry([tool("one")], [GRANT]) as r:
        assert r.registry.deps.settings.limits.admin_body_bytes > CHUNK_BYTES
        fits, more = (send(r, chunk(0, tool("two")).ljust(size)) for size in (CHUNK_BYTES, CHUNK_BYTES + 1))

    assert fits.status_code == 200
    assert (more.status_code, more.json()["code"]) == (413, "too_large")


@pytest.mark.anyio
async def test_a_stage_that_nobody_continues_is_dropped() -> None:
    state = PolicyState(ManualClock())
    staging = Staging(state, most=1 << 20, seconds=0.05)
    await staging.take(SnapshotChunk.model_validate_json(BODIES[0]), BODIES[0])
    assert staging.size == len(BODIES[0])
    await until(lambda: staging.size == 0)
    assert state.snapshot.revision is None


def test_accounts_that_are_known_to_be_none_are_not_the_same_as_accounts_that_are_not_known() -> None:
    known = PublishedAccount(namespace="team", name="bot", uid="u1")
    for accounts, expected in ((None, None), ((), {}), ((known,), {"team/bot": known})):
        with running_registry(publish=False) as r:
            body = SnapshotChunk(to=NEXT, stage=STAGE, number=0, accounts=accounts).model_dump_json().encode()
            send(r, body)
            finish(r, commit_of([body]))
            assert r.registry.deps.state.snapshot.accounts == expected


def test_a_snapshot_of_a_leader_that_cannot_prove_its_view_is_no_sign_of_life() -> None:
    clock = ManualClock()
    with running_registry([tool("one")], [GRANT], clock=clock, policy_max_age=900.0) as r:
        clock.advance(890)
        for body in BODIES:
            send(r, body)
        finish(r, commit_of(BODIES, age=890.0))
        clock.advance(20)
        stale = r.http.post(r.url + "/v1/call", headers=r.auth("team", "bot"), json={"tool": "one"})

    assert stale.json()["code"] == "policy_stale"


def test_only_admin_subjects_stage_and_commit() -> None:
    with running_registry([tool("one")], [GRANT]) as r:
        for path, body in (("chunks", BODIES[0]), ("commit", commit_of(BODIES).model_dump_json().encode())):
            url = f"{r.admin_url}/v1/admin/snapshot/{path}"
            assert r.http.post(url, content=body).status_code == 401
            assert (
                r.http.post(url, content=body, headers=r.admin_auth("system:serviceaccount:x:y")).status_code
                == 403
            )
        assert r.registry.deps.staging.size == 0


SLOW = {
    "empty objects": {str(i): {} for i in range(7_500)},
    "nested objects": {f"p{i}": {"a": {"b": {"c": {}}}} for i in range(2_200)},
    "numbers": {"enum": [i / 7 for i in range(3_400)]},
    "short texts": {"enum": [f"{i}" for i in range(8_500)]},
    "one text": {"description": "x" * 65_000},
}


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("kind", SLOW)
def test_reading_a_full_chunk_holds_the_interpreter_for_less_than_80_ms(kind: str) -> None:
    """The parser keeps Python's lock while it reads: nothing else of the process runs meanwhile."""
    schema = {"type": "object", "properties": SLOW[kind]}
    one, body = tool("t", input_schema=schema, output_schema=schema), b""
    assert len(one.packed_input) < 80_000
    count = CHUNK_AIM // len(one.model_dump_json()) + 1  # more than the operator puts into one
    body = chunk(0, *[one.model_copy(update={"tool_id": f"team/t{i}"}) for i in range(count)])
    taken = []
    with process.heap.settled():  # collections as in a registry
        for _ in range(3):
            begun = time.thread_time()
            SnapshotChunk.model_validate_json(body)
            taken.append(time.thread_time() - begun)
    gc.freeze()  # as the suite had it
    assert min(taken) < 0.08
