"""New grants and the admission policies: what was written while nobody checked is refused, and stays so."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from operator_harness import MemoryReplica, binding, conditions, tool, until
from toolcrib import admission
from toolcrib_operator import assessing
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.errors import ClusterUnavailable, NotListable
from toolcrib_operator.indexing import Indexing
from toolcrib_operator.loop import Loop
from toolcrib_operator.policies import Policies
from toolcrib_operator.publisher import Publisher
from toolcrib_operator.reconcile.admitting import Admitted, differs, obstacle
from toolcrib_operator.reconcile.bindings import assess_binding
from toolcrib_operator.reconcile.verdicts import BindingVerdict
from toolcrib_operator.settings import IndexSettings, LoopSettings, PolicySettings, PublisherSettings
from toolcrib_operator.world import WATCHED, Entry, Ref, World

pytestmark = pytest.mark.anyio

SETTINGS = LoopSettings(hold_back=0.05, takeover_hold=0.1, finalizers=False)
REFUSED = ("False", "AdmissionPolicyMissing")
WAITS = ("False", "AdmissionPolicyUnread")


class Shelf:
    """The policies as an API server would list them."""

    def __init__(self) -> None:
        self.manifests = [_on_server(m, f"uid-{i}") for i, m in enumerate(admission.manifests())]
        self.error: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.reads = 0

    async def policies(self) -> list[dict[str, Any]]:
        self.reads += 1
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return copy.deepcopy(self.manifests)

    def without(self, name: str, kind: str = admission.POLICY) -> list[dict[str, Any]]:
        return [
            m for m in self.manifests if (m["kind"], m["metadata"]["name"]) != (kind, f"{name}.toolcrib.dev")
        ]


def _on_server(manifest: dict[str, Any], uid: str) -> dict[str, Any]:
    manifest = copy.deepcopy(manifest)
    manifest["metadata"] |= {"uid": uid, "generation": 1, "resourceVersion": "7"}
    return manifest


class EarlyShelf(Shelf):
    """It has made up its answer when it is asked, but each of `holds` keeps one back."""

    def __init__(self) -> None:
        super().__init__()
        self.holds: list[asyncio.Event] = []

    async def policies(self) -> list[dict[str, Any]]:
        found = await super().policies()
        if self.holds:
            await self.holds.pop(0).wait()
        return found


class Stage:
    """An operator's loop over a World, an honest replica and a shelf of policies."""

    def __init__(self, shelf: Shelf, *, external: bool = False, every: float = 0.02) -> None:
        self.shelf, self.replica = shelf, MemoryReplica()
        self.world = World()
        publisher = Publisher(1, FixedReplicas(self.replica), settings=PublisherSettings(discover=0.05))
        indexing = Indexing(publisher, settings=IndexSettings(inventory=0.2))
        fast = PolicySettings(every=every, settle=0.2, stale_after=0.3)
        self.policies = Policies(Admitted(external=external), None if external else shelf, settings=fast)
        writer = MemoryWriter(self.world)
        self.loop = Loop(self.world, publisher, indexing, writer, settings=SETTINGS, policies=self.policies)

    @contextlib.asynccontextmanager
    async def running(self, *objects: dict[str, Any]) -> AsyncIterator["Stage"]:
        for kind in WATCHED:
            self.world.replace(kind, [o for o in objects if o["kind"] == kind])
        stop = asyncio.Event()
        task = asyncio.create_task(self.loop.run(stop))
        try:
            yield self
        finally:
            stop.set()
            await task

    def accepted(self, name: str = "planner") -> tuple[str, str] | None:
        entry = self.world.get(Ref("AgentScopeBinding", f"heist/{name}"))
        return None if entry is None else conditions(entry.status).get("Accepted")

    def message(self, name: str = "planner") -> str:
        entry = self.world.get(Ref("AgentScopeBinding", f"heist/{name}"))
        assert entry is not None
        return next(c["message"] for c in entry.status["conditions"] if c["type"] == "Accepted")

    def granted(self) -> set[str]:
        return {b.name for b in self.replica.snapshot.bindings.values() if b.scopes}

    async def until(self, accepted: tuple[str, str], name: str = "planner") -> None:
        await until(lambda: self.accepted(name) == accepted, what=f"{name}: {self.accepted(name)}")

    async def write(self, manifest: dict[str, Any]) -> None:
        async with asyncio.timeout(5):
            await self.loop.published(self.world.upsert("AgentScopeBinding", manifest))


async def test_a_grant_written_while_a_policy_is_missing_is_refused_and_older_ones_stay() -> None:
    shelf = Shelf()
    async with Stage(shelf).running(tool("calculator"), binding("planner", ["calculator:use"])) as stage:
        await stage.until(("True", "Accepted"))
        whole, shelf.manifests = shelf.manifests, shelf.without("bindings-grant")
        await stage.write(binding("late", ["calculator:use"], tools={"deny": ["secret"], "allow": ["calc*"]}))
        await stage.until(REFUSED, "late")
        assert "ValidatingAdmissionPolicy bindings-grant.toolcrib.dev is missing" in stage.message("late")
        assert "write it anew" in stage.message("late")
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
            async with asyncio.timeout(5):
                await stage.loop.published(change)
        finally:
            shelf.answers.set()
        (left,) = stage.replica.snapshot.bindings.values()
        assert (left.name, left.scopes) == ("hacker", ("calculator:use",))


async def test_policies_that_were_put_back_count_when_they_are_in_force() -> None:
    shelf = Shelf()
    async with Stage(shelf).running() as stage:
        await until(lambda: stage.policies.known)
        whole, shelf.manifests = shelf.manifests, shelf.without("bindings-equip", admission.BINDING)
        await until(lambda: stage.policies.admitted.problem is not None)
        shelf.manifests = whole
        await stage.write(binding("early", ["x:use"]))
        await stage.until(REFUSED, "early")
        assert "not in force yet" in stage.message("early")


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
    old["status"] = {"conditions": [_accepted("True", "Accepted", 3)]}
    edited = binding("edited", ["calculator:use"])
    edited["metadata"] |= {"uid": "u2", "generation": 4, "resourceVersion": "11"}
    edited["status"] = {"conditions": [_accepted("True", "Accepted", 3)]}
    refused = binding("refused", ["calculator:use"])
    refused["metadata"] |= {"uid": "u3", "generation": 1, "resourceVersion": "12"}
    refused["status"] = {"conditions": [_accepted("False", "AdmissionPolicyMissing", 1)]}
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


UNREAD = [NotListable("forbidden"), ClusterUnavailable("no answer")]
"""A server that is away or does not answer; and every server forbids everything until it has read its roles."""


@pytest.mark.parametrize("error", UNREAD)
async def test_a_grant_waits_while_the_policies_cannot_be_read_and_is_in_force_once_they_are(
    error: ClusterUnavailable,
) -> None:
    shelf = Shelf()
    async with Stage(shelf).running(tool("calculator"), binding("planner", ["calculator:use"])) as stage:
        await stage.until(("True", "Accepted"))
        shelf.error = error
        await stage.write(binding("late", ["calculator:use"], tools={"deny": ["secret"]}))
        await stage.write(binding("planner", []))
        await stage.until(WAITS, "late")
        assert "It waits" in stage.message("late")
        (held,) = (b for b in stage.replica.snapshot.bindings.values() if b.name == "late")
        assert (held.deny, held.scopes) == (("secret",), ())
        assert stage.granted() == set(), "what an edit takes away does not wait"
        await until(lambda: stage.policies.admitted.problem is not None)
        assert stage.accepted("late") == WAITS
        shelf.error = None
        await stage.until(("True", "Accepted"), "late")
        assert stage.granted() == {"late"}


async def test_an_edit_that_waits_takes_away_at_once_and_adds_nothing() -> None:
    shelf = Shelf()
    old = binding("planner", ["one:use", "two:use"], tools={"deny": ["secret"]})
    async with Stage(shelf).running(old) as stage:
        await stage.until(("True", "Accepted"))
        shelf.error = ClusterUnavailable("no answer")
        await stage.write(binding("planner", ["two:use", "three:use"], tools={"deny": ["other"]}))
        await stage.until(WAITS)
        (held,) = stage.replica.snapshot.bindings.values()
        assert (held.scopes, held.deny) == (("two:use",), ("secret", "other"))
        shelf.error = None
        await stage.until(("True", "Accepted"))
        (held,) = stage.replica.snapshot.bindings.values()
        assert (held.scopes, held.deny) == (("two:use", "three:use"), ("other",))


EDITS = [
    {"subjects": [{"kind": "ServiceAccount", "name": "somebody-else"}]},
    {"limits": {"callsPerMinute": 3}},
    {"tools": {"allow": ["*"], "deny": ["other"]}},
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: next(iter(edit)))
async def test_an_edit_of_more_than_scopes_grants_nothing_while_it_waits_and_lifts_no_deny(
    edit: dict[str, Any],
) -> None:
    shelf = Shelf()
    old = binding("planner", ["one:use"], tools={"deny": ["secret"]})
    async with Stage(shelf).running(old) as stage:
        await stage.until(("True", "Accepted"))
        shelf.error = ClusterUnavailable("no answer")
        new = {"tools": {"deny": ["other"]}} | edit
        await stage.write(binding("planner", ["one:use"], **new))
        await stage.until(WAITS)
        (held,) = stage.replica.snapshot.bindings.values()
        assert (held.scopes, held.allow, held.deny) == ((), None, ("secret", "other"))
        subjects = {subject.name for subject in held.subjects}
        assert "planner" in subjects, f"whom it was denied to before: {subjects}"
        assert len(subjects) == 1 + ("subjects" in edit)
        shelf.error = None
        await stage.until(("True", "Accepted"))
        (held,) = stage.replica.snapshot.bindings.values()
        assert (held.scopes, held.deny, len(held.subjects)) == (("one:use",), ("other",), 1)


@pytest.mark.parametrize("error", UNREAD)
async def test_a_leader_who_takes_over_knows_which_policies_a_grant_waits_for(
    error: ClusterUnavailable,
) -> None:
    shelf = Shelf()
    async with Stage(shelf).running(tool("calculator")) as stage:
        await until(lambda: stage.policies.known)
        shelf.error = error
        await stage.write(binding("late", ["calculator:use"]))
        await stage.until(WAITS, "late")
        entry = stage.world.get(Ref("AgentScopeBinding", "heist/late"))
    assert entry is not None
    late = binding("late", ["calculator:use"])
    late["metadata"] |= {"uid": entry.uid, "generation": entry.generation, "resourceVersion": "11"}
    late["status"] = copy.deepcopy(dict(entry.status))

    # never allowed to read them, the next one cannot know better
    async with Stage(shelf).running(tool("calculator"), copy.deepcopy(late)) as stage:
        if isinstance(error, NotListable):
            await until(lambda: stage.policies.known)
            await stage.write(binding("other", ["calculator:use"]))
            await stage.until(REFUSED, "other")
            assert stage.accepted("late") == WAITS
        shelf.error = None
        await stage.until(("True", "Accepted"), "late")
        assert "late" in stage.granted()

    for manifest in shelf.manifests:
        manifest["metadata"]["uid"] += "-again"
    async with Stage(shelf).running(tool("calculator"), copy.deepcopy(late)) as stage:
        await stage.until(REFUSED, "late")
        assert "were others" in stage.message("late")
        assert stage.granted() == set()


async def test_a_grant_is_decided_by_the_look_of_its_own_turn() -> None:
    async with Stage(Shelf(), every=60).running() as stage:
        await until(lambda: stage.policies.known)
        await stage.write(binding("planner", ["x:use"]))
        await stage.until(("True", "Accepted"))


async def test_a_generation_that_comes_while_a_look_is_under_way_waits_for_the_next() -> None:
    shelf = EarlyShelf()
    async with Stage(shelf, every=60).running() as stage:
        await until(lambda: stage.policies.known)
        hold, reads = asyncio.Event(), shelf.reads
        shelf.holds.append(hold)
        stage.world.upsert("AgentScopeBinding", binding("planner", ["one:use"]))
        await until(lambda: shelf.reads > reads and not shelf.holds)
        change = stage.world.upsert("AgentScopeBinding", binding("planner", ["two:use"]))
        shelf.manifests = []
        hold.set()
        async with asyncio.timeout(5):
            await stage.loop.published(change)
        await stage.until(REFUSED)
        granted = {scope for sent in stage.replica.publishes for b in sent.bindings for scope in b.scopes}
        assert granted <= {"one:use"}, "what was checked by that look, and nothing else"


async def test_an_answer_that_comes_late_does_not_undo_a_newer_one() -> None:
    shelf, admitted = EarlyShelf(), Admitted(external=False)
    policies = Policies(admitted, shelf)
    hold = asyncio.Event()
    shelf.holds.append(hold)
    first = asyncio.create_task(policies.look())
    await until(lambda: shelf.reads == 1 and not shelf.holds)
    shelf.manifests = []
    second = asyncio.create_task(policies.look())
    for _ in range(20):
        await asyncio.sleep(0)
    hold.set()
    await asyncio.gather(first, second)
    assert admitted.problem is not None
    assert "is missing" in admitted.problem
    assert admitted.answered == admitted.begun == 2


async def test_what_was_read_before_a_long_silence_refuses_nothing_for_good() -> None:
    now, shelf, admitted = [0.0], Shelf(), Admitted(external=False)
    policies = Policies(admitted, shelf, monotonic=lambda: now[0])
    await policies.look()
    entry = seen(binding("planner", ["x:use"]))
    admitted.notice(entry)
    await policies.look()  # it could be decided now, but nobody leads
    shelf.error = ClusterUnavailable("no answer")
    now[0] = 31.0
    await policies.look()
    assert admitted.problem is not None
    problem = admitted.judge(entry, BindingVerdict(None)).refusal
    assert problem is not None
    assert problem.reason == WAITS[1]


def seen(manifest: dict[str, Any]) -> Entry:
    world = World()
    world.upsert("AgentScopeBinding", manifest)
    entry = world.get(Ref("AgentScopeBinding", f"heist/{manifest['metadata']['name']}"))
    assert entry is not None
    return entry


def test_what_waited_under_another_leader_waits_for_a_look_that_reads_the_policies() -> None:
    admitted = Admitted(external=False)
    manifest = binding("planner", ["x:use"])
    manifest["metadata"] |= {"uid": "u1", "generation": 2}
    message = "It waits: since it was written the admission policies (last seen: 0a1b) could not be read."
    manifest["status"] = {"conditions": [_accepted("False", WAITS[1], 2) | {"message": message}]}
    entry = seen(manifest)
    admitted.begun = admitted.answered = 3  # by which it is known that they may not be read
    admitted.notice(entry)
    admitted.begun = admitted.answered = 4
    refusal = admitted.judge(entry, BindingVerdict(None)).refusal
    assert refusal is not None
    assert (refusal.reason, "last seen: 0a1b" in refusal.message) == (WAITS[1], True)
    assert admitted.ripe() == set(), "or the loop would turn for ever"
    admitted.begun = admitted.answered = 5
    assert admitted.ripe() == {entry.ref}


def test_a_binding_that_is_made_anew_keeps_nothing_of_the_one_of_its_name() -> None:
    admitted = Admitted(external=False)
    entry = seen(binding("planner", ["x:use"], tools={"deny": ["other"]}))
    verdict = assess_binding(entry, namespaces={}, trusted=())
    assert verdict.published is not None
    old = verdict.published.model_copy(update={"uid": "another", "deny": ("secret",)})
    held = admitted.judge(entry, verdict, old).published
    assert held is not None
    assert (held.scopes, held.deny) == ((), ("other",))


async def test_a_binding_that_cannot_be_assessed_keeps_nobody_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(*_: object, **__: object) -> None:
        raise RuntimeError("nobody foresaw it")

    async with Stage(Shelf()).running() as stage:
        await until(lambda: stage.policies.known)
        monkeypatch.setattr(assessing, "assess_binding", poisoned)
        await stage.write(binding("planner", ["x:use"]))
        assert stage.policies.admitted.ripe() == set()


@pytest.mark.parametrize("error", UNREAD)
async def test_no_grant_slips_in_where_the_policies_go_while_they_cannot_be_read(
    error: ClusterUnavailable,
) -> None:
    shelf = Shelf()
    async with Stage(shelf).running(tool("calculator")) as stage:
        await until(lambda: stage.policies.known)
        whole, shelf.manifests, shelf.error = shelf.manifests, [], error
        await stage.write(binding("early", ["calculator:use"]))
        await stage.until(WAITS, "early")
        assert stage.granted() == set()
        # put back before anybody could read that they were gone: they are others
        for manifest in whole:
            manifest["metadata"]["uid"] += "-again"
        shelf.manifests, shelf.error = whole, None
        await stage.until(REFUSED, "early")
        assert stage.granted() == set()


async def test_a_grant_waits_for_a_slow_answer_and_never_rests_on_an_older_one() -> None:
    shelf = Shelf()
    async with Stage(shelf).running(tool("calculator")) as stage:
        await until(lambda: stage.policies.known)
        shelf.answers.clear()
        # a look that began before the grant may tell of policies that have gone since
        reads = shelf.reads
        await until(lambda: shelf.reads > reads)
        await stage.write(binding("early", ["calculator:use"]))
        await stage.until(WAITS, "early")
        shelf.manifests = []
        shelf.answers.set()
        await stage.until(REFUSED, "early")
        assert stage.granted() == set()


async def test_a_binding_that_waits_and_is_deleted_leaves_nothing_behind() -> None:
    shelf = Shelf()
    async with Stage(shelf).running(tool("calculator")) as stage:
        await until(lambda: stage.policies.known)
        shelf.error = ClusterUnavailable("no answer")
        await stage.write(binding("late", ["calculator:use"]))
        await stage.until(WAITS, "late")
        change = stage.world.remove("AgentScopeBinding", "heist/late")
        async with asyncio.timeout(5):
            await stage.loop.published(change)
        shelf.error = None
        await until(lambda: stage.policies.admitted.problem is None)
        assert stage.policies.admitted.ripe() == set()


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


def _accepted(status: str, reason: str, generation: int) -> dict[str, Any]:
    return {
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": "write it anew",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-11-22T10:00:00Z",
    }
