"""New grants and the admission policies: what was written while nobody checked is refused, and stays so."""

import asyncio
from typing import Any

import pytest

from manifests import binding, tool
from policy_stage import REFUSED, Shelf, Stage, accepted_condition
from toolcrib.resources import admission
from toolcrib_operator.admission.comparison import differs, obstacle
from toolcrib_operator.errors import ClusterUnavailable, NotListable
from waiting import until

pytestmark = pytest.mark.anyio


async def test_a_grant_written_while_a_policy_is_missing_is_refused_and_older_ones_stay() -> None:
    shelf = Shelf()
    async with Stage(shelf).running(tool("calculator"), binding("planner", ["calculator:use"])) as stage:
        await stage.until(("True", "Accepted"))
        whole, shelf.manifests = shelf.manifests, shelf.without("bindings-grant")
        await stage.write(binding("late", ["calculator:use"], tools={"deny": ["secret"], "allow": ["calc*"]}))
        await stage.until(REFUSED, "late")
        assert "ValidatingAdmissionPolicy bindings-grant.toolcrib.dev is missing" in stage.message("late")
        assert "write the binding again" in stage.message("late")
        assert stage.granted() == {"planner"}
        # what it denies holds, and grants nothing by the way
        (held,) = (b for b in stage.replica.snapshot.bindings.values() if b.name == "late")
        assert (held.deny, held.scopes, held.allow) == (("secret",), (), None)

        # an edit of an old one is a new grant
        await stage.write(binding("planner", ["calculator:use", "more:use"]))
        await stage.until(REFUSED)
        assert stage.granted() == set()

        shelf.manifests = whole
        await until(lambda: stage.policies.admitted.problem is None)
        await asyncio.sleep(0.1)
        assert stage.accepted() == REFUSED
        await stage.write(binding("planner", ["calculator:use"]))
        await stage.until(("True", "Accepted"))
        assert stage.accepted("late") == REFUSED
        assert stage.granted() == {"planner"}


async def test_a_revocation_does_not_wait_for_policies_that_cannot_be_read_in_time() -> None:
    shelf = Shelf()
    grants = (binding("planner", ["calculator:use"]), binding("hacker", ["calculator:use", "query:use"]))
    async with Stage(shelf).running(tool("calculator"), *grants) as stage:
        await stage.until(("True", "Accepted"))
        await stage.until(("True", "Accepted"), "hacker")
        shelf.answers.clear()
        # in one turn: a grant is narrowed, which asks for the policies, and another is gone
        stage.world.upsert("AgentScopeBinding", binding("hacker", ["calculator:use"]))
        change = stage.world.remove("AgentScopeBinding", "heist/planner")
        try:
            async with asyncio.timeout(60):
                await stage.loop.published(change)
        finally:
            shelf.answers.set()
        (left,) = stage.replica.snapshot.bindings.values()
        assert (left.name, left.scopes) == ("hacker", ("calculator:use",))


async def test_policies_that_were_put_back_count_when_they_are_in_effect() -> None:
    shelf = Shelf()
    async with Stage(shelf, settle=60).running() as stage:
        await until(lambda: stage.policies.known)
        whole, shelf.manifests = shelf.manifests, shelf.without("bindings-equip", admission.BINDING)
        await until(lambda: stage.policies.admitted.problem is not None)
        shelf.manifests = whole
        await stage.write(binding("early", ["x:use"]))
        await stage.until(REFUSED, "early")
        assert "not in effect yet" in stage.message("early")


async def test_policies_that_were_replaced_between_two_looks_are_noticed() -> None:
    shelf = Shelf()
    async with Stage(shelf).running() as stage:
        await until(lambda: stage.policies.known)
        shelf.manifests[0]["metadata"]["uid"] = "another"
        await until(lambda: stage.policies.admitted.problem is not None)
        await until(lambda: stage.policies.admitted.problem is None)


async def test_nothing_is_judged_before_the_policies_were_read_and_old_grants_need_none() -> None:
    shelf = Shelf()
    shelf.error = ClusterUnavailable("no answer")
    old = binding("planner", ["calculator:use"])
    old["metadata"] |= {"uid": "u1", "generation": 3, "resourceVersion": "10"}
    old["status"] = {"conditions": [accepted_condition("True", "Accepted", 3)]}
    edited = binding("edited", ["calculator:use"])
    edited["metadata"] |= {"uid": "u2", "generation": 4, "resourceVersion": "11"}
    edited["status"] = {"conditions": [accepted_condition("True", "Accepted", 3)]}
    refused = binding("refused", ["calculator:use"])
    refused["metadata"] |= {"uid": "u3", "generation": 1, "resourceVersion": "12"}
    refused["status"] = {"conditions": [accepted_condition("False", "AdmissionPolicyMissing", 1)]}
    async with Stage(shelf).running(tool("calculator"), old, edited, refused) as stage:
        await asyncio.sleep(0.2)
        assert stage.replica.snapshot.revision is None
        shelf.manifests = []
        shelf.error = None
        await until(lambda: stage.granted() == {"planner"})
        await stage.until(REFUSED, "edited")
    whole = Shelf()
    async with Stage(whole).running(tool("calculator"), old, edited, refused) as stage:
        await until(lambda: stage.granted() == {"planner", "edited"})
        await asyncio.sleep(0.1)
        assert stage.accepted("refused") == REFUSED, "an operator that starts anew remembers by the status"


async def test_without_the_right_to_read_them_they_count_as_missing_and_with_it_they_are_found() -> None:
    shelf = Shelf()
    shelf.error = NotListable("forbidden: cannot list validatingadmissionpolicies")
    async with Stage(shelf).running(binding("planner", ["x:use"])) as stage:
        await stage.until(REFUSED)
        assert "cannot list validatingadmissionpolicies" in stage.message()
        shelf.error = None
        await until(lambda: stage.policies.admitted.problem is None)


async def test_with_external_admission_nobody_looks() -> None:
    shelf = Shelf()
    shelf.manifests = []
    async with Stage(shelf, external=True).running(binding("planner", ["x:use"])) as stage:
        await stage.until(("True", "Accepted"))
        assert shelf.reads == 0


CHANGES: dict[str, Any] = {
    "failurePolicy": "Ignore",
    "matchConstraints.namespaceSelector": {"matchLabels": {"checked": "yes"}},
    "matchConstraints.objectSelector": {"matchLabels": {"checked": "yes"}},
    "matchConstraints.excludeResourceRules": [{"resources": ["*"]}],
    "matchConstraints.resourceRules": [],
    "matchConditions": [{"name": "never", "expression": "false"}],
    "validations": [],
    "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    "variables": [],
}


@pytest.mark.parametrize("path", CHANGES)
def test_an_altered_policy_is_noticed(path: str) -> None:
    shelf = Shelf()
    assert obstacle(shelf.manifests, None) is None
    *outer, last = path.split(".")
    at = shelf.manifests[0]["spec"]
    for key in outer:
        at = at[key]
    at[last] = CHANGES[path]
    problem = obstacle(shelf.manifests, None)
    assert problem is not None
    assert problem.startswith(
        f"ValidatingAdmissionPolicy bindings-grant.toolcrib.dev was altered: spec.{outer[0] if outer else last}"
    )


@pytest.mark.parametrize(
    "change",
    [{"validationActions": ["Audit"]}, {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}},
     {"paramRef": {"name": "x"}}, {"policyName": "another"}],
)  # fmt: skip
def test_an_altered_binding_of_a_policy_is_noticed(change: dict[str, Any]) -> None:
    shelf = Shelf()
    shelf.manifests[1]["spec"] |= change
    problem = obstacle(shelf.manifests, None)
    assert problem is not None
    assert problem.startswith("ValidatingAdmissionPolicyBinding bindings-grant.toolcrib.dev was altered")


def test_every_policy_but_the_one_that_warns_is_needed() -> None:
    shelf = Shelf()
    for kind in (admission.POLICY, admission.BINDING):
        for name in ("bindings-grant", "bindings-equip", "bindings-lift", "tools-gate", "operator"):
            assert obstacle(shelf.without(name, kind), None) == f"{kind} {name}.toolcrib.dev is missing"
        assert obstacle(shelf.without("warnings", kind), None) is None


def test_the_operators_account_may_be_its_own_or_any_of_its_name_and_no_other() -> None:
    own, other = "system:serviceaccount:ours:crib", "system:serviceaccount:theirs:crib"
    assert obstacle(admission.manifests(own), own) is None
    assert obstacle(admission.manifests(), own) is None
    assert "operator.toolcrib.dev was altered" in str(obstacle(admission.manifests(other), own))


def test_what_a_later_api_server_fills_in_is_no_alteration() -> None:
    wanted = {"failurePolicy": "Fail", "matchConstraints": {"namespaceSelector": {}}}
    assert differs(wanted, {"failurePolicy": "Fail", "newDefault": "x", "matchConstraints": {}}) is None
    same = {
        "failurePolicy": "Fail",
        "matchConstraints": {"namespaceSelector": None, "excludeResourceRules": []},
    }
    assert differs(wanted, same | {"paramKind": None, "auditAnnotations": []}) is None
