"""New grants while the admission policies cannot be read: they wait, and nothing slips in meanwhile."""

import asyncio
import copy
import time
from typing import Any

import pytest

from manifests import binding, tool
from policy_stage import REFUSED, WAITS, EarlyShelf, Shelf, Stage, accepted_condition, entry_of
from toolcrib_operator import kinds
from toolcrib_operator.admission.policies import Policies
from toolcrib_operator.errors import ClusterUnavailable, NotListable
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.kinds.binding import assess_binding
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.verdicts import BindingVerdict
from toolcrib_operator.objects import Ref
from waiting import until

pytestmark = pytest.mark.anyio


UNREAD = [NotListable("forbidden"), ClusterUnavailable("no answer")]
"""A server that is away or does not answer; and every server forbids everything until it has read its roles."""


@pytest.mark.parametrize("error", UNREAD)
async def test_a_grant_waits_while_the_policies_cannot_be_read_and_is_in_effect_once_they_are(
    error: ClusterUnavailable,
) -> None:
    shelf = Shelf()
    async with Stage(shelf).running(tool("calculator"), binding("planner", ["calculator:use"])) as stage:
        await stage.until(("True", "Accepted"))
        shelf.error = error
        await stage.write(binding("late", ["calculator:use"], tools={"deny": ["secret"]}))
        await stage.write(binding("planner", []))
        await stage.until(WAITS, "late")
        assert "Pending: " in stage.message("late")
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


async def test_an_edit_that_waits_keeps_what_was_denied_by_scope_and_denies_what_is_new() -> None:
    shelf = Shelf()
    old = binding("planner", ["one:use", "two:use"], tools={"denyScopes": ["vault:use"]})
    async with Stage(shelf).running(old) as stage:
        await stage.until(("True", "Accepted"))
        shelf.error = ClusterUnavailable("no answer")
        await stage.write(binding("planner", ["two:use", "vault:use"], tools={"denyScopes": ["other:use"]}))
        await stage.write(binding("late", ["three:use"], tools={"denyScopes": ["four:use"]}))
        await stage.until(WAITS)
        await stage.until(WAITS, "late")
        held = {b.name: (b.scopes, b.deny_scopes) for b in stage.replica.snapshot.bindings.values()}
        assert held == {
            "planner": (("two:use",), ("vault:use", "other:use")),
            "late": ((), ("four:use",)),
        }


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
        assert "had changed" in stage.message("late")
        assert stage.granted() == set()

    shelf.manifests = []
    async with Stage(shelf).running(tool("calculator"), copy.deepcopy(late)) as stage:
        await stage.until(REFUSED, "late")


async def test_a_grant_that_waits_and_whose_status_lacks_the_field_counts_as_having_seen_none() -> None:
    """An earlier version wrote it, or the definition in the cluster is older than the operator."""
    late = binding("late", ["calculator:use"])
    late["metadata"] |= {"uid": "u1", "generation": 1, "resourceVersion": "11"}
    late["status"] = {"conditions": [accepted_condition("False", WAITS[1], 1)]}
    async with Stage(Shelf()).running(tool("calculator"), late) as stage:
        await stage.until(REFUSED, "late")
        assert stage.granted() == set()


async def test_which_policies_a_grant_waits_for_stands_in_its_status_until_it_is_decided() -> None:
    shelf = Shelf()
    async with Stage(shelf).running(tool("calculator")) as stage:
        await until(lambda: stage.policies.known)
        shelf.error = ClusterUnavailable("no answer")
        await stage.write(binding("late", ["calculator:use"]))
        await stage.until(WAITS, "late")
        entry = stage.world.get(Ref("AgentScopeBinding", "heist/late"))
        assert entry is not None
        assert entry.status["policiesSeen"] == stage.policies.admitted.seen
        shelf.error = None
        await stage.until(("True", "Accepted"), "late")
        entry = stage.world.get(Ref("AgentScopeBinding", "heist/late"))
        assert entry is not None
        assert "policiesSeen" not in entry.status


async def test_a_grant_that_began_to_wait_before_any_policy_was_read_is_refused_by_the_next_leader() -> None:
    late = binding("late", ["calculator:use"])
    late["metadata"] |= {"uid": "u1", "generation": 1, "resourceVersion": "11"}
    late["status"] = {"policiesSeen": "", "conditions": [accepted_condition("False", WAITS[1], 1)]}
    async with Stage(Shelf()).running(tool("calculator"), late) as stage:
        await stage.until(REFUSED, "late")
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
        async with asyncio.timeout(60):
            await stage.loop.published(change)
        await stage.until(REFUSED)
        granted = {scope for sent in stage.replica.publishes for b in sent.bindings for scope in b.scopes}
        assert granted <= {"one:use"}, "what was checked by that look, and nothing else"


async def test_a_look_that_takes_too_long_for_its_turn_goes_on_and_decides_the_grant() -> None:
    shelf = EarlyShelf()
    async with Stage(shelf, every=60, look_within=0.05).running(tool("calculator")) as stage:
        await until(lambda: stage.policies.known)
        hold, reads = asyncio.Event(), shelf.reads
        shelf.holds.append(hold)
        await stage.write(binding("planner", ["calculator:use"]))
        await stage.until(WAITS)
        assert stage.granted() == set()
        hold.set()
        await stage.until(("True", "Accepted"))
        assert shelf.reads == reads + 1, "what waited and can be decided is not looked up again"


async def test_a_grant_that_comes_during_a_look_is_decided_by_one_that_begins_when_it_ends() -> None:
    shelf = EarlyShelf()
    async with Stage(shelf, every=60, look_within=0.05).running(tool("calculator")) as stage:
        await until(lambda: stage.policies.known)
        holds, reads = [asyncio.Event(), asyncio.Event()], shelf.reads
        shelf.holds += holds
        await stage.write(binding("one", ["calculator:use"]))
        await stage.write(binding("two", ["calculator:use"]))
        await stage.write(binding("three", ["calculator:use"]))
        assert shelf.reads == reads + 1, "one look at a time"
        shelf.manifests = []
        holds[0].set()
        await stage.until(("True", "Accepted"), "one")
        await until(lambda: not shelf.holds)
        assert stage.granted() == {"one"}
        holds[1].set()
        await stage.until(REFUSED, "two")
        await stage.until(REFUSED, "three")
        assert (shelf.reads, stage.granted()) == (reads + 2, {"one"})


async def test_what_was_read_before_a_long_silence_refuses_nothing_for_good() -> None:
    now, shelf, admitted = [0.0], Shelf(), Admitted(external=False)
    policies = Policies(admitted, shelf, monotonic=lambda: now[0])
    await policies.look()
    entry = entry_of(binding("planner", ["x:use"]))
    record = Record(entry.ref)
    admitted.notice(record, entry)
    await policies.look()  # it could be decided now, but nobody leads
    shelf.error = ClusterUnavailable("no answer")
    now[0] = 31.0
    await policies.look()
    assert admitted.problem is not None
    problem = admitted.judge(record, entry, BindingVerdict(None)).refusal
    assert problem is not None
    assert problem.reason == WAITS[1]


def test_what_waited_under_another_leader_waits_for_a_look_that_reads_the_policies() -> None:
    admitted = Admitted(external=False)
    manifest = binding("planner", ["x:use"])
    manifest["metadata"] |= {"uid": "u1", "generation": 2}
    waits = accepted_condition("False", WAITS[1], 2)
    manifest["status"] = {"policiesSeen": "0a1b", "conditions": [waits]}
    entry = entry_of(manifest)
    record = Record(entry.ref)
    admitted.begun = admitted.answered = 3  # by which it is known that they may not be read
    admitted.notice(record, entry)
    admitted.begun = admitted.answered = 4
    waiting = admitted.judge(record, entry, BindingVerdict(None))
    assert waiting.refusal is not None
    assert (waiting.refusal.reason, waiting.policies_seen) == (WAITS[1], "0a1b")
    assert admitted.ripe() == set(), "or the loop would turn for ever"
    admitted.begun = admitted.answered = 5
    assert admitted.ripe() == {entry.ref}


def test_a_binding_that_is_recreated_keeps_nothing_of_the_previous_one() -> None:
    admitted = Admitted(external=False)
    entry = entry_of(binding("planner", ["x:use"], tools={"deny": ["other"]}))
    record = Record(entry.ref)
    verdict = assess_binding(entry, namespaces={}, trusted=())
    assert verdict.published is not None
    record.published = verdict.published.model_copy(update={"uid": "another", "deny": ("secret",)})
    held = admitted.judge(record, entry, verdict).published
    assert held is not None
    assert (held.scopes, held.deny) == ((), ("other",))


async def test_a_binding_that_cannot_be_assessed_keeps_nobody_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(*_: object, **__: object) -> None:
        raise RuntimeError("nobody foresaw it")

    async with Stage(Shelf()).running() as stage:
        await until(lambda: stage.policies.known)
        monkeypatch.setattr(kinds.binding, "assess_binding", poisoned)
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


@pytest.mark.parametrize("slow", [True, False], ids=["slow", "failing"])
async def test_a_grant_that_comes_before_restored_policies_are_in_effect_is_refused_however_late_they_are_read(
    slow: bool,
) -> None:
    shelf = Shelf()
    async with Stage(shelf, look_within=0.05, settle=1.0).running(tool("calculator")) as stage:
        await until(lambda: stage.policies.known)
        whole, shelf.manifests = shelf.manifests, []
        await until(lambda: "missing" in str(stage.policies.admitted.problem))
        for manifest in whole:
            manifest["metadata"]["uid"] += "-again"
        shelf.manifests = whole
        await until(lambda: "restored" in str(stage.policies.admitted.problem))
        back = time.monotonic()
        if slow:
            shelf.answers.clear()
        else:
            shelf.error = ClusterUnavailable("no answer")
        await stage.write(binding("early", ["calculator:use"]))
        await stage.until(WAITS, "early")
        await until(lambda: time.monotonic() - back > 1.1)
        await stage.write(binding("later", ["calculator:use"]))
        shelf.error = None
        shelf.answers.set()
        await stage.until(REFUSED, "early")
        assert "No policy checked" in stage.message("early")
        await stage.until(("True", "Accepted"), "later")
        assert stage.granted() == {"later"}


def test_what_a_grant_waits_for_are_the_policies_that_were_seen_when_it_came() -> None:
    admitted = Admitted(external=False)
    entry = entry_of(binding("early", ["x:use"]))
    record = Record(entry.ref)
    admitted.problem, admitted.seen, admitted.begun = None, "0a1b", 2
    admitted.notice(record, entry)
    admitted.seen, admitted.answered = "2c3d", 2
    waits = admitted.judge(record, entry, BindingVerdict(None))
    assert waits.refusal is not None
    assert (waits.refusal.reason, waits.policies_seen) == (WAITS[1], "0a1b")
    admitted.begun = admitted.answered = 3
    refusal = admitted.judge(record, entry, BindingVerdict(None)).refusal
    assert refusal is not None
    assert (refusal.reason, "not in effect yet" in refusal.message) == (REFUSED[1], True)


def test_what_waited_for_restored_policies_to_be_in_effect_is_refused_by_the_next_leader() -> None:
    before, after = Admitted(external=False), Admitted(external=False)
    entry = entry_of(binding("early", ["x:use"]))
    record = Record(entry.ref)
    before.problem, before.seen, before.begun = "they were just put back", "0a1b", 1
    before.notice(record, entry)
    waits = before.judge(record, entry, BindingVerdict(None))
    manifest = binding("early", ["x:use"])
    manifest["metadata"] |= {"uid": entry.uid, "generation": entry.generation}
    told = accepted_condition("False", WAITS[1], entry.generation)
    manifest["status"] = {"policiesSeen": waits.policies_seen, "conditions": [told]}
    after.problem, after.seen, after.begun, after.answered = None, "2c3d", 1, 1
    refusal = after.judge(Record(entry.ref), entry_of(manifest), BindingVerdict(None)).refusal
    assert refusal is not None
    assert refusal.reason == REFUSED[1]


async def test_a_binding_that_waits_and_is_deleted_leaves_nothing_behind() -> None:
    shelf = Shelf()
    async with Stage(shelf).running(tool("calculator")) as stage:
        await until(lambda: stage.policies.known)
        shelf.error = ClusterUnavailable("no answer")
        await stage.write(binding("late", ["calculator:use"]))
        await stage.until(WAITS, "late")
        change = stage.world.remove("AgentScopeBinding", "heist/late")
        async with asyncio.timeout(60):
            await stage.loop.published(change)
        shelf.error = None
        await until(lambda: stage.policies.admitted.problem is None)
        assert stage.policies.admitted.ripe() == set()
