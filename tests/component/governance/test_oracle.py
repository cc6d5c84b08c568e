"""Every path shows exactly what the oracle allows, in 1,000 random cases, 3,400 in `make test-real`; `make proof` asks 100,000.

TOOLCRIB_PROOF_SEED draws the same worlds again; a difference names its seed and prints the smallest case.
"""

import asyncio
import json
import os
import random
import secrets
from collections.abc import Callable
from typing import Any

import pytest

import toolcrib.view
from broken_authorizers import without_territory
from oracle import decisions, proof, worlds
from oracle.paths import PATHS
from oracle.proof import Disagreement
from oracle.rig import rig
from suites import size
from toolcrib import names
from toolcrib.authorizer import Action, Decision, Policy, Reason, decide
from toolcrib.authorizer.bindings import CompiledBinding
from toolcrib.identity import Identity
from toolcrib.wire.publish import PublishedBinding
from toolcrib_registry.policy import view_cache
from toolcrib_registry.policy.state import PolicyState

pytestmark = pytest.mark.guarantee

CASES = size(quick=1000, whole=3_400)
AGREES_WITH = {
    0: {decisions.YES},
    1: {decisions.NO_IDENTITY},
    2: {decisions.INACTIVE},
    3: {decisions.DENIED},
    4: {decisions.NOT_GRANTED},
    5: {decisions.NOT_IN_TOKEN},
    Reason.AGENT_SUSPENDED: {decisions.SUSPENDED},
}


def seed() -> int:
    """Another one in every run, unless it is given."""
    return int(os.environ.get("TOOLCRIB_PROOF_SEED") or secrets.randbelow(1 << 32))


@pytest.mark.property
def test_every_path_shows_exactly_what_the_oracle_allows() -> None:
    tally = asyncio.run(proof.run(CASES, seed()))

    print(tally.table())
    assert sum(tally.cases.values()) == CASES
    assert set(tally.cases) == set(PATHS)
    assert all(tally.shown[path] for path in PATHS)
    assert set(tally.reasons) == {reason for reasons in AGREES_WITH.values() for reason in reasons}


def test_the_authorizer_gives_the_oracles_reason_and_names_the_oracles_binding() -> None:
    drawn = seed()

    async def compare() -> set[str]:
        seen = set()
        draw = random.Random(drawn)
        async with rig("closed") as closed, rig("local") as local:
            for one in [closed, local] * 60:
                world = worlds.world(draw, one.kind)
                await one.publish(world, index=False)
                issuers = worlds.issuers(one.kind)
                policy = one.registry.deps.state.snapshot.policy
                tools = one.registry.deps.state.snapshot.tools
                for at in worlds.moments(draw, world, 2):
                    one.clock.set(at)
                    for key, caller in world["callers"].items():
                        token = one.token(caller)
                        asker = await one.registry.deps.agents.identify(
                            [f"Bearer {token}".encode()] if token else []
                        )
                        for tool in world["tools"]:
                            wanted = decisions.decide(world, caller, issuers, tool, "call", at)
                            found = decide(asker.identity, tools[tool["id"]], Action.CALL, policy, at)
                            alone = found.reason is Reason.AGENT_SUSPENDED
                            step = found.reason if alone else found.reason.step or 0
                            said = (
                                found.allowed,
                                AGREES_WITH[step],
                                found.binding.uid if found.binding else None,
                            )
                            case = f"seed {drawn}, {key} at {at}, {tool}, {world}"
                            assert (said[0], said[1]) == (wanted[0], {wanted[1]}), case
                            if wanted[2] is not None:
                                assert said[2] == wanted[2], case
                            seen.add(wanted[1])
        return seen

    assert len(asyncio.run(compare())) == len(AGREES_WITH)


# ---- an oracle that finds nothing proves nothing ----------------------------------------------------------------------


def never_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledBinding, "in_namespaces", lambda self, tool: self.source.scopes != ())


def deaf_to_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = CompiledBinding.of

    def of(binding: PublishedBinding) -> Any:
        return real(binding.model_copy(update={"deny_scopes": ()}))

    monkeypatch.setattr(CompiledBinding, "of", of)


def on_any_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledBinding, "in_servers", lambda self, tool: True)


def for_a_second_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        CompiledBinding,
        "valid",
        lambda self, now: (self.source.not_before or 0) <= now <= (self.source.expires_at or 4e9) + 1,
    )


def leaking_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    real = names.ToolPattern.matches

    def matches(self: names.ToolPattern, *, namespace: str, server: str | None, name: str) -> bool:
        return real(self, namespace=namespace, server=server or "github", name=name)

    monkeypatch.setattr(names.ToolPattern, "matches", matches)


def accounts_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Policy, "_present", lambda self, identity: True)


def views_that_outlive_their_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolcrib.view, "next_change", lambda identity, policy, now: 4e9)


def calls_without_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    real = toolcrib.view.View.resolve

    def resolve(self: toolcrib.view.View, name: str) -> Any:
        found = real(self, name)
        return found or next((t for t in LATEST.values() if t.tool_id == name), None)

    def listed(self: toolcrib.view.View, tool_id: str) -> str:
        return self._listed.get(tool_id, tool_id)

    def allow(
        identity: Identity | None, tool: Any, action: Action, policy: Any, now: float, **more: Any
    ) -> Decision:
        return Decision(tool is not None, Reason.GRANTED if tool is not None else Reason.UNKNOWN_TOOL)

    publish = PolicyState.publish

    async def remembered(self: PolicyState, step: Any) -> Any:
        answer = await publish(self, step)
        LATEST.clear()
        LATEST.update(self.snapshot.tools)
        return answer

    monkeypatch.setattr(PolicyState, "publish", remembered)
    monkeypatch.setattr(toolcrib.view.View, "resolve", resolve)
    monkeypatch.setattr(toolcrib.view.View, "listed_name", listed)
    monkeypatch.setattr(toolcrib.view.View, "model_name", listed)
    monkeypatch.setattr(view_cache, "decide", allow)


def names_to_whoever_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolcrib.view._Near, "holder", lambda self, sharing: sharing[0])


def selected_namespaces_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(identity: Identity, policy: Any, now: float) -> frozenset[str]:
        return frozenset().union(*(b.namespaces or () for b in policy.of(identity)))

    monkeypatch.setattr(toolcrib.view, "named_namespaces", named)


LATEST: dict[str, Any] = {}


@pytest.mark.parametrize(
    "broken",
    [
        without_territory,
        deaf_to_scopes,
        on_any_server,
        accounts_forever,
        calls_without_a_decision,
        names_to_whoever_comes_first,
        selected_namespaces_that_name,
        pytest.param(never_denies, marks=pytest.mark.long),
        pytest.param(for_a_second_longer, marks=pytest.mark.long),
        pytest.param(leaking_patterns, marks=pytest.mark.long),
        pytest.param(views_that_outlive_their_grants, marks=pytest.mark.long),
    ],
)
def test_a_broken_registry_is_found_out(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)

    with pytest.raises(Disagreement) as found:
        asyncio.run(proof.run(20_000, 7, shrink=False, patience=0.1))

    assert found.value.document["seed"] == 7
    assert found.value.document["script"]


@pytest.mark.long
def test_a_difference_is_told_with_a_small_case_that_shows_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    without_territory(monkeypatch)

    with pytest.raises(Disagreement) as found:
        # a seed whose first difference is of a grant: that of a deny takes a grant beside it
        asyncio.run(proof.run(20_000, 1, patience=0.1))

    small = json.loads(str(found.value).partition("\n")[2])
    assert len(small["script"]) == 1
    # a tool and its grant; a difference of a deny takes a binding more
    assert len(small["world"]["tools"]) + len(small["world"]["bindings"]) <= 3
    assert asyncio.run(proof.replay(small)) is not None
    monkeypatch.undo()
    assert asyncio.run(proof.replay(small)) is None
