"""What looks like a mistake in a binding: found in a fixed order, told once, and never in the way of the grant."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from manifests import binding, cluster_binding, manifest, tool
from operator_stage import ACCOUNT, SETTINGS, staged
from published import tool as published_tool
from toolcrib import publishing
from toolcrib.resources import parse
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.tools import ToolState
from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.questions import NONE, Question, questions, summary
from toolcrib_operator.objects import Ref
from waiting import until

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
TOOLS = [
    published_tool("heist/read", name="read", scopes=("use",), server="files"),
    published_tool("heist/delete", name="delete", scopes=("use",), server="files"),
    published_tool("heist/off", name="off", scopes=("use",), state=ToolState.DISABLED),
]


def asked(spec: dict[str, Any], accounts: Sequence[str] | None = ("heist/planner",)) -> tuple[Question, ...]:
    found = publishing.binding(parse(binding("planner", **{"scopes": ["use"], **spec})))  # type: ignore[arg-type]
    exists = None if accounts is None else accounts.__contains__
    return questions(found, TOOLS, exists=exists, applied=NOW)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, []),
        ({"tools": {"allow": ["read"], "deny": ["files:delete"]}}, []),
        ({"expiresAt": "2027-01-15T08:00:01Z"}, []),
        ({"expiresAt": "2027-01-15T08:00:00Z"}, [("ExpiredAtApply", "spec.expiresAt")]),
        ({"subjects": [{"kind": "ServiceAccount", "name": "nobody"}]}, [("SubjectNotFound", "spec.subjects[0]")]),
        (
            {"subjects": [{"kind": "ServiceAccount", "name": "planner"}, {"kind": "Agent", "name": "ghost"}]},
            [("SubjectNotFound", "spec.subjects[1]")],
        ),
        ({"subjects": [{"kind": "ServiceAccount", "namespace": "far", "name": "planner"}]},
         [("SubjectNotFound", "spec.subjects[0]")]),
        ({"subjects": [{"kind": "User", "issuer": "https://login.example", "name": "ann"}]}, []),
        # covered as it is written, whatever tools there are; then by the tools that there are
        ({"tools": {"allow": ["later"], "deny": ["lat*", "read"]}},
         [("AllowShadowed", "spec.tools.allow[0]"), ("DenyNeverFires", "spec.tools.deny[0]")]),
        ({"tools": {"allow": ["read", "files:de*"], "deny": ["delete"]}},
         [("AllowShadowed", "spec.tools.allow[1]"), ("WildcardAllow", "spec.tools.allow[1]")]),
        ({"tools": {"allow": ["files:*"], "deny": ["delete"]}}, [("WildcardAllow", "spec.tools.allow[0]")]),
        ({"tools": {"deny": ["files:delete_*"]}}, [("DenyNeverFires", "spec.tools.deny[0]")]),
        ({"tools": {"deny": ["web:delete"]}}, [("DenyNeverFires", "spec.tools.deny[0]")]),
        ({"tools": {"denyScopes": ["use"]}, "scopes": ["x"]}, []),
        ({"tools": {"denyScopes": ["vault", "use"]}, "scopes": ["read"]},
         [("DenyNeverFires", "spec.tools.denyScopes[0]")]),
        ({"tools": {"denyScopes": ["use"]}, "scopes": ["read", "use"]}, [("ScopeShadowed", "spec.scopes[1]")]),
        ({"tools": {"allow": ["read"], "denyScopes": ["use"]}, "scopes": ["x"]},
         [("AllowShadowed", "spec.tools.allow[0]")]),
        ({"tools": {"deny": ["off"]}}, []),  # a disabled tool is there, too
        ({"tools": {"deny": ["delete"]}, "servers": ["elsewhere"]}, []),  # servers do not narrow a deny
        ({"tools": {"allow": ["r?ad"]}}, [("WildcardAllow", "spec.tools.allow[0]")]),
    ],
)  # fmt: skip
def test_each_oddity_is_found_with_its_field(spec: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert [(q.reason.value, q.field) for q in asked(spec)] == found


def test_where_accounts_are_not_known_none_is_missed() -> None:
    assert asked({"subjects": [{"kind": "ServiceAccount", "name": "nobody"}]}, accounts=None) == ()


def test_the_condition_has_the_first_reason_and_every_message() -> None:
    everything = asked(
        {
            "expiresAt": "2020-01-01T00:00:00Z",
            "subjects": [{"kind": "Agent", "name": "ghost"}],
            "tools": {"allow": ["delete*"], "deny": ["delete*", "never"]},
        }
    )
    odd, why = summary(everything)
    assert odd
    assert why.reason is ConditionReason.EXPIRED_AT_APPLY
    order = ["spec.expiresAt", "spec.subjects[0]", "spec.tools.allow[0]", "spec.tools.deny[1]", "spec.tools.allow[0]"]  # fmt: skip
    assert [part.split(": ")[0] for part in why.message.split("; ")] == order
    assert summary(()) == (False, NONE)


async def test_an_oddity_leaves_the_binding_ready_and_is_told_by_one_event() -> None:
    deny = binding("planner", ["calculator:use"], tools={"deny": ["delete_*"]})
    async with staged(tool("calculator"), deny, ACCOUNT) as stage:
        await until(lambda: stage.said().get("Ready") == ("True", "Ready"))
        assert stage.said()["Questionable"] == ("True", "DenyNeverFires")
        assert stage.said()["MatchesNothing"] == ("False", "Matches")
        await until(lambda: ("Warning", "DenyNeverFires") in stage.told())
        stage.world.upsert("Tool", tool("delete-all", name="delete_all"))
        await until(lambda: stage.said()["Questionable"] == ("False", "NothingOdd"))
        await until(lambda: ("Normal", "NothingOdd") in stage.told())
        assert sorted(stage.told()) == [
            ("Normal", "NothingOdd"), ("Normal", "Ready"), ("Warning", "DenyNeverFires"),
        ]  # fmt: skip


async def test_patterns_may_mean_resources_and_prompts_of_servers_alone() -> None:
    both = binding("planner", ["docs:use"], tools={"allow": ["docs:@resources"], "deny": ["docs:@prompts"]})
    place = {"url": "https://docs.example.com/mcp"}
    docs = manifest("ToolServer", "docs", "heist", mcp=place, defaults={"scopes": ["docs:use"]})
    async with staged(tool("calculator"), both, ACCOUNT) as stage:
        await until(lambda: stage.said().get("Questionable") == ("True", "DenyNeverFires"))
        assert stage.said()["MatchesNothing"] == ("True", "MatchesNothing")
        stage.world.upsert("ToolServer", docs)
        await until(lambda: stage.said()["MatchesNothing"] == ("False", "Matches"))
        await until(lambda: stage.said()["Questionable"] == ("False", "NothingOdd"))


async def test_a_binding_of_powers_alone_reaches_no_tool_and_that_is_no_mistake() -> None:
    both = cluster_binding("both", ["registry:admin", "x:use"], namespaceSelector={})
    powers = cluster_binding("powers", ["registry:admin", "registry:write"], namespaceSelector={})
    async with staged(tool("calculator"), powers, both, ACCOUNT) as stage:
        await until(lambda: stage.said("both", "ClusterAgentScopeBinding").get("Ready") == ("True", "Ready"))
        said = stage.said("powers", "ClusterAgentScopeBinding")
        assert (said["Ready"], said["MatchesNothing"]) == (("True", "Ready"), ("False", "PowersAlone"))
        said = stage.said("both", "ClusterAgentScopeBinding")
        assert said["MatchesNothing"] == ("True", "MatchesNothing")


async def test_a_binding_that_is_sound_is_told_of_by_ready_alone() -> None:
    async with staged(tool("calculator"), binding("planner", ["calculator:use"]), ACCOUNT) as stage:
        await until(lambda: stage.told() == [("Normal", "Ready")])
        assert stage.said()["Questionable"] == ("False", "NothingOdd")


async def test_an_account_that_comes_or_goes_is_seen_in_the_bindings_that_name_it_and_in_no_others() -> None:
    settings = replace(SETTINGS, rewrite_every=0.5)
    other = binding(
        "hacker", ["calculator:use"], subjects=[{"kind": "User", "issuer": "https://x", "name": "y"}]
    )
    async with staged(tool("calculator"), binding("planner", ["calculator:use"]), other,
                      cluster_binding("planner", ["calculator:use"], namespaces=["heist"]), settings=settings) as stage:  # fmt: skip
        missing, fine = ("True", "SubjectNotFound"), ("False", "NothingOdd")
        for expected in (missing, fine, missing):
            for kind in ("AgentScopeBinding", "ClusterAgentScopeBinding"):
                await until(lambda kind=kind, e=expected: stage.said(kind=kind).get("Questionable") == e)  # type: ignore[misc]
            await until(lambda: stage.said()["Ready"] == ("True", "Ready"))
            await until(lambda: stage.said("hacker").get("Questionable") == fine)
            if expected == missing:
                stage.world.upsert(SERVICE_ACCOUNT, ACCOUNT)
            else:
                stage.world.remove(SERVICE_ACCOUNT, "heist/planner")
        await until(lambda: stage.told("heist/hacker"))
        assert [reason for _, reason in stage.told("heist/hacker")] == ["Ready"]


async def test_a_flapping_account_rewrites_the_status_at_most_once_in_a_while() -> None:
    settings = replace(SETTINGS, rewrite_every=1.0)
    async with staged(
        tool("calculator"), binding("planner", ["calculator:use"]), ACCOUNT, settings=settings
    ) as stage:
        await until(lambda: stage.said().get("Ready") == ("True", "Ready"))
        began = time.monotonic()
        stage.world.remove(SERVICE_ACCOUNT, "heist/planner")
        await until(lambda: stage.said()["Questionable"] == ("True", "SubjectNotFound"))
        written = stage.writer.statuses
        for _ in range(3):
            stage.world.upsert(SERVICE_ACCOUNT, ACCOUNT)
            await asyncio.sleep(0.15)
            stage.world.remove(SERVICE_ACCOUNT, "heist/planner")
            await asyncio.sleep(0.05)
        stage.world.upsert(SERVICE_ACCOUNT, ACCOUNT)
        # six changes took less than a second, or as many more as the machine stood still
        assert stage.writer.statuses <= written + int(time.monotonic() - began)
        await until(lambda: stage.said()["Questionable"] == ("False", "NothingOdd"))
        assert stage.writer.statuses <= written + max(1, int(time.monotonic() - began))


async def test_a_new_leader_that_finds_everything_as_it_was_writes_and_tells_nothing() -> None:
    old = binding("planner", ["calculator:use"], expiresAt="2020-01-01T00:00:00Z", tools={"deny": ["never"]})
    async with staged(tool("calculator"), old, ACCOUNT) as first:
        await until(lambda: first.said().get("Propagated") == ("True", "Propagated"))
        assert first.said()["Questionable"] == ("True", "ExpiredAtApply")
        await until(lambda: ("Warning", "ExpiredAtApply") in first.told())
        world = first.world
    world.touch([Ref("AgentScopeBinding", "heist/planner"), Ref("Tool", "heist/calculator")])
    async with staged(world=world) as second:
        await asyncio.sleep(0.6)
        assert (second.writer.statuses, second.writer.events) == (0, [])


async def test_a_grant_that_ends_says_expired_by_one_event_and_is_not_called_a_mistake() -> None:
    for lead in (1, 5, 20):  # a machine that stands still may see the end before the grant
        soon = (datetime.now(UTC) + timedelta(seconds=lead)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ending = binding("planner", ["calculator:use"], expiresAt=soon)
        async with staged(tool("calculator"), ending, ACCOUNT) as stage:
            await until(lambda: "Ready" in stage.said())
            await until(lambda: stage.said()["Ready"][1] in ("Ready", "Expired"))
            if stage.said()["Ready"] != ("True", "Ready"):
                continue
            await until(lambda: stage.said()["Expired"] == ("True", "Expired"))
            assert stage.said()["Ready"] == ("False", "Expired")
            assert stage.said()["Questionable"] == ("False", "NothingOdd")
            stage.world.upsert("Tool", tool("another"))
            await asyncio.sleep(0.5)
            assert stage.told() == [("Normal", "Ready"), ("Warning", "Expired")]
            assert stage.said()["Questionable"] == ("False", "NothingOdd")
            return
    pytest.fail("it was never in force")


async def test_an_edit_to_a_date_in_the_past_is_a_mistake_of_that_edit() -> None:
    async with staged(tool("calculator"), binding("planner", ["calculator:use"]), ACCOUNT) as stage:
        await until(lambda: stage.said().get("Questionable") == ("False", "NothingOdd"))
        past = binding("planner", ["calculator:use"], expiresAt="2020-01-01T00:00:00Z")
        stage.world.upsert("AgentScopeBinding", past)
        await until(lambda: stage.said()["Questionable"] == ("True", "ExpiredAtApply"))


async def test_a_refused_binding_is_not_questioned() -> None:
    labelled = cluster_binding("auditor", ["calculator:use"], namespaceSelector={"matchLabels": {"team": "a"}},
                               tools={"deny": ["never"]})  # fmt: skip
    async with staged(tool("calculator"), labelled) as stage:
        await until(lambda: stage.said("auditor", "ClusterAgentScopeBinding").get("Accepted"))
        said = stage.said("auditor", "ClusterAgentScopeBinding")
        assert said["Accepted"] == ("False", "UntrustedLabel")
        assert said["Questionable"] == ("False", "NotAccepted")


async def test_tools_described_alike_are_told_until_one_of_them_says_more() -> None:
    same = {"description": "Opens the door of the vault"}
    async with staged(tool("front", **same), tool("back", **same), tool("side")) as stage:

        def questionable(key: str) -> tuple[str, str] | None:
            return stage.said(key, "Tool").get("Questionable")

        duplicate, fine = ("True", "DuplicateDescription"), ("False", "NothingOdd")
        await until(lambda: questionable("heist/front") == questionable("heist/back") == duplicate)
        await until(lambda: questionable("heist/side") == fine)
        assert stage.said("heist/front", "Tool")["Ready"] == ("True", "Ready")
        stage.world.upsert("Tool", tool("back", description="Opens the back door, by night alone"))
        await until(lambda: questionable("heist/front") == questionable("heist/back") == fine)
        stage.world.upsert("Tool", tool("third", **same))
        await until(lambda: questionable("heist/front") == questionable("heist/third") == duplicate)
        stage.world.remove("Tool", "heist/third")
        await until(lambda: questionable("heist/front") == fine)
        assert "DuplicateDescription" not in [reason for _, reason in stage.told("heist/front")]
