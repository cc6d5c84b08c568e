"""What the registry remembers of views: bounded by bytes, shared by those who see the same, the latest callers' first."""

import math
from typing import Any

from registry_harness import ISSUER, RunningRegistry, binding, running_registry, tool
from toolcrib.identity import Identity
from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedSubject
from toolcrib_registry.policy.state import CallerView, PolicyState

TEAM = PublishedSubject(kind=SubjectKind.GROUP, issuer=ISSUER, name="system:serviceaccounts:team")
TOOLS = [tool(f"t{i}", scopes=("all:use",), description="x" * 10_000) for i in range(50)]
BODY = 50 * 10_000


def listed(r: RunningRegistry, name: str) -> bytes:
    answer = r.http.get(r.url, headers=r.auth("team", name))
    assert (answer.status_code, answer.json()["total_available"]) == (200, 50)
    return answer.content


def caller_view(r: RunningRegistry, name: str) -> CallerView:
    async def seen() -> CallerView:
        who = Identity(ISSUER, f"system:serviceaccount:team:{name}", math.inf, cluster=True)
        return await r.registry.deps.state.caller_view(who)

    return r.on_loop(seen)


def held(state: PolicyState) -> Any:
    return state._view_cache


def test_many_callers_who_see_the_same_share_one_view_and_one_answer() -> None:
    grant = binding("team", ("all:use",), subjects=(TEAM,))
    with running_registry(TOOLS, [grant]) as r:
        bodies = {listed(r, f"agent-{i}") for i in range(30)}
        assert len(bodies) == 1
        memory = held(r.registry.deps.state)
        assert len(memory) >= 30
        assert memory.weight < 2 * BODY


def test_views_that_differ_are_forgotten_beyond_the_bound_those_of_the_latest_callers_last() -> None:
    names = [f"agent-{i}" for i in range(8)]
    grants = [
        binding("team", ("all:use",), subjects=(TEAM,)),
        # the scopes of a caller are in its answer: each has one of its own
        *(binding(name, (f"{name}:use",)) for name in names),
    ]
    with running_registry(TOOLS, grants, limits={"view_bytes": 4 * BODY}) as r:
        memory = held(r.registry.deps.state)
        for name in names:
            listed(r, names[0])
            listed(r, name)
            assert memory.weight <= 4 * BODY
        assert len({listed(r, name) for name in names}) == 8
        assert memory.weight <= 4 * BODY
        r.publish([tool("one", scopes=("other:use",))])
        assert (len(memory), memory.weight) == (0, 0)


def test_a_caller_who_asks_all_the_time_keeps_its_view_among_many_who_ask_once() -> None:
    grants = [binding("team", ("all:use",), subjects=(TEAM,))]
    with running_registry([*TOOLS[:3]], grants, limits={"view_bytes": 1 << 20}) as r:
        busy = caller_view(r, "busy")
        for i in range(1_200):
            caller_view(r, f"once-{i}")
            if i % 100 == 0:
                assert caller_view(r, "busy") is busy
        assert held(r.registry.deps.state).weight <= 1 << 20
        assert len(held(r.registry.deps.state)) < 1_100
