"""A deny that stops matching what it matched: said by a condition and an event, also by the next leader."""

from dataclasses import replace
from typing import Any

import pytest

from manifests import binding, cluster_binding, tool
from operator_stage import ACCOUNT, SETTINGS, Stage, staged
from toolcrib.authorizer import Policy
from toolcrib_operator import kinds
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.binding import binding_status
from toolcrib_operator.kinds.statuses import Progress
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.kinds.verdicts import BindingVerdict
from toolcrib_operator.objects import Ref
from toolcrib_operator.packing import packed_status
from toolcrib_operator.status.escapes import MOST_ESCAPED, Escapes, _left
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio

OFTEN = replace(SETTINGS, rewrite_every=0.2)
HOLDS, WEAKENED = ("False", "DenyHolds"), ("True", "DenyStoppedMatching")
OPEN = ["use", "open"]
EVERYTHING = [Ref("AgentScopeBinding", "heist/planner"), Ref("Tool", "heist/vault")]
"""A new leader lists all there is."""


def denying(**tools: list[str]) -> dict[str, Any]:
    return binding("planner", ["use"], tools=tools)


def vault(name: str = "safe", **spec: Any) -> dict[str, Any]:
    return tool("vault", **{"name": name, "server": "bank", "scopes": ["use", "vault"], **spec})


def recreated(stage: Stage, manifest: dict[str, Any]) -> None:
    """Deleted and created again; what the World holds of it in between is nothing."""
    stage.world.remove("Tool", "heist/vault")
    stage.world.upsert("Tool", manifest)


def status(stage: Stage) -> Any:
    entry = stage.world.get(Ref("AgentScopeBinding", "heist/planner"))
    return {} if entry is None else entry.status


def message(stage: Stage) -> str:
    return str(next(c["message"] for c in status(stage)["conditions"] if c["type"] == "DenyWeakened"))


async def said(stage: Stage, wanted: tuple[str, str]) -> None:
    await until(lambda: stage.said().get("DenyWeakened") == wanted, what=f"{wanted}: {status(stage)}")


LEAVING: dict[str, tuple[dict[str, list[str]], dict[str, Any]]] = {
    "another name": ({"deny": ["safe", "other*"]}, vault("strongbox")),
    "another server": ({"deny": ["bank:*"]}, vault(server="elsewhere")),
    "no server": ({"deny": ["bank:*"]}, tool("vault", name="safe", scopes=OPEN)),
    "other scopes": ({"denyScopes": ["vault"]}, vault(scopes=OPEN)),
}


@pytest.mark.parametrize("away", [False, True], ids=["at once", "after a while"])
@pytest.mark.parametrize("how", LEAVING)
async def test_a_tool_that_leaves_a_deny_is_told_while_others_still_match(how: str, away: bool) -> None:
    denies, after = LEAVING[how]
    other = tool("other", name="other-safe", server="bank", scopes=["use", "vault"])
    async with staged(vault(), other, denying(**denies), ACCOUNT, settings=OFTEN) as stage:
        await said(stage, HOLDS)
        if away:
            stage.world.remove("Tool", "heist/vault")
            await until(lambda: Ref("Tool", "heist/vault") not in stage.loop.assessor.published)
            stage.world.upsert("Tool", after)
        else:
            recreated(stage, after)
        await said(stage, WEAKENED)
        await until(lambda: "heist/vault was denied and no longer is" in message(stage))
        assert status(stage)["escapedTools"] == ["heist/vault"]
        await until(lambda: ("Warning", "DenyStoppedMatching") in stage.told())
        recreated(stage, vault())
        await said(stage, HOLDS)
        await until(lambda: ("Normal", "DenyHolds") in stage.told())


async def test_an_entry_that_matched_and_matches_nothing_now_is_told_and_one_that_never_did_is_not() -> None:
    async with staged(vault(), denying(deny=["safe", "never"]), ACCOUNT, settings=OFTEN) as stage:
        await said(stage, HOLDS)
        assert status(stage)["firedDenials"] == ["deny/safe"]
        stage.world.remove("Tool", "heist/vault")
        stage.world.upsert("Tool", tool("another-object", name="strongbox", scopes=OPEN))
        await said(stage, WEAKENED)
        assert message(stage) == "tools.deny/safe matched a tool before and matches none now"


async def test_each_further_tool_that_leaves_is_an_event_and_an_edit_of_the_binding_starts_over() -> None:
    others = [tool(f"t{i}", name=f"t{i}", scopes=["vault"]) for i in range(3)]
    async with staged(*others, denying(denyScopes=["vault"]), ACCOUNT, settings=OFTEN) as stage:
        await said(stage, HOLDS)
        for i in range(2):
            stage.world.upsert("Tool", tool(f"t{i}", name=f"t{i}", scopes=OPEN))
            await until(lambda i=i: f"heist/t{i}" in (status(stage).get("escapedTools") or []))
        await until(lambda: stage.told().count(("Warning", "DenyStoppedMatching")) == 2)
        stage.world.upsert("AgentScopeBinding", denying(denyScopes=["vault"], deny=["x"]))
        await said(stage, HOLDS)
        assert "escapedTools" not in status(stage)
        assert status(stage)["firedDenials"] == ["denyScopes/vault"]


async def test_the_next_leader_remembers_what_was_found_and_sees_what_stopped_while_nobody_led() -> None:
    async with staged(
        vault(), denying(deny=["safe"], denyScopes=["vault"]), ACCOUNT, settings=OFTEN
    ) as stage:
        await said(stage, HOLDS)
        recreated(stage, vault("strongbox", scopes=OPEN))
        await until(lambda: status(stage).get("escapedTools") == ["heist/vault"])
        world = stage.world
    world.touch(EVERYTHING)
    async with staged(settings=OFTEN, world=world) as stage:
        await until(lambda: stage.loop.started)
        assert stage.said()["DenyWeakened"] == WEAKENED
        recreated(stage, vault())
        await said(stage, HOLDS)
        world = stage.world
    world.touch(EVERYTHING)
    world.remove("Tool", "heist/vault")
    async with staged(settings=OFTEN, world=world) as stage:
        await said(stage, WEAKENED)
        assert "denyScopes/vault matched a tool before and matches none now" in message(stage)


async def test_a_condition_of_a_later_version_stops_nothing() -> None:
    """As after a rollback."""
    held = denying(denyScopes=["vault"])
    async with staged(vault(), held, ACCOUNT, settings=OFTEN) as stage:
        await said(stage, HOLDS)
        entry = stage.world.get(EVERYTHING[0])
        assert entry is not None
        verdict = stage.loop.assessor.verdicts[entry.ref]
        assert isinstance(verdict, BindingVerdict)
    kept = [c for c in entry.status["conditions"] if c["type"] != "DenyWeakened"]
    for reason in ("SomethingNew", None):
        odd = [{"type": "DenyWeakened", "status": "True", "reason": reason, "message": "x"}]
        later = replace(entry, said=packed_status({**entry.status, "conditions": [*kept, *odd]}))
        desired = binding_status(later, verdict, Progress(), None, 0.0)
        assert "DenyWeakened" not in {c["type"] for c in desired.status["conditions"]}
    desired = binding_status(entry, verdict, Progress(), None, 0.0)
    assert desired.status["firedDenials"] == ["denyScopes/vault"]
    assert ("DenyWeakened", "DenyHolds") in {(c["type"], c["reason"]) for c in desired.status["conditions"]}


async def test_a_binding_that_denies_nothing_says_nothing_of_denials() -> None:
    async with staged(vault(), binding("planner", ["use"]), ACCOUNT) as stage:
        await until(lambda: stage.said().get("Ready") == ("True", "Ready"))
        assert "DenyWeakened" not in stage.said()
        assert not {"firedDenials", "escapedTools"} & set(status(stage))


def test_what_is_remembered_of_tools_that_left_and_of_those_that_escaped_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kinds.tool, "_REMEMBERED", 10)
    world = World()
    for kind in WATCHED:
        world.replace(kind, [])
    assessor = Assessor(world, SETTINGS)

    def turn() -> Any:
        refs = assessor.expand(world.take()[0])
        assessor.judge(refs)
        return assessor.batch()

    everybody = cluster_binding("all", ["x"], namespaceSelector={}, tools={"denyScopes": ["vault"]})
    world.upsert("ClusterAgentScopeBinding", everybody)
    for i in range(30):
        world.upsert("Tool", tool(f"t{i}", name=f"t{i}", scopes=["vault"]))
    policy = Policy.compile(turn().bindings)
    for i in range(30):
        world.remove("Tool", f"heist/t{i}")
        turn()
    for i in range(30):
        world.upsert("Tool", tool(f"t{i}", name=f"t{i}", scopes=OPEN))
    moves = turn().moved
    assert [after.tool_id for _, after in moves] == [f"heist/t{i}" for i in range(20, 30)]
    assert len(_left(moves, policy)) == 10
    escapes = Escapes(assessor.facts.records)
    (held,) = {b.uid: b for b, _ in _left(moves, policy)}.values()
    for i in range(40):
        escapes._note(held, f"heist/t{i}")
    assert len(escapes.of(held)) == MOST_ESCAPED
    assert escapes.of(held.model_copy(update={"generation": 9})) == ()
    assert escapes.of(held.model_copy(update={"uid": "another"})) == ()
    world.remove("ClusterAgentScopeBinding", "all")
    turn()
    escapes._note(held, "heist/t1")
    assert escapes.of(held) == ()
