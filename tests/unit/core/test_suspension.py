"""A suspended Agent: its identities get nothing, by whatever they are granted, and nobody else sees a difference."""

import pytest

from published import OAUTH, account, binding, bot, client, suspension, tool
from toolcrib.access.holders import who_holds
from toolcrib.access.review import AccessReview
from toolcrib.access.subjects import Who
from toolcrib.authorizer import Action, Order, Policy, Reason, decide, granted_scopes, has_power
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.publish import Publish, PublishedBinding, PublishedSubject, Removed, Revision

NOW = 1_000.0
CLI = PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, issuer=OAUTH, client_id="cli")
ALICE = PublishedSubject(kind=SubjectKind.USER, issuer=OAUTH, name="alice")
GRANT = binding(
    namespace=None, subjects=(account(), account(name="other"), CLI, ALICE), scopes=("use", "registry:admin")
)


def whole(*bindings: PublishedBinding) -> Snapshot:
    return Snapshot().apply(Publish(to=Revision(epoch=1, seq=1), tools=(tool(),), bindings=bindings))


@pytest.mark.parametrize(
    "who",
    [
        pytest.param(bot(), id="its service account"),
        pytest.param(client(), id="an OAuth client"),
        pytest.param(client("alice", client=None, policy=ScopesPolicy.BINDINGS), id="a user"),
        pytest.param(client(policy=ScopesPolicy.TOKEN), id="whose token alone decides"),
    ],
)
def test_every_identity_that_it_names_is_refused_everything(who: Identity) -> None:
    stopped = suspension("bot", "team-a", CLI, ALICE)
    before, after = whole(GRANT), whole(GRANT, stopped)

    assert decide(who, tool(), Action.CALL, before.policy, NOW).allowed
    for action in Action:
        found = decide(who, tool(), action, after.policy, NOW)
        assert (found.allowed, found.reason, found.binding) == (False, Reason.AGENT_SUSPENDED, stopped)
        assert found.reason.step is Order.IDENTITY
    assert decide(who, None, Action.CALL, after.policy, NOW).reason is Reason.AGENT_SUSPENDED
    assert not view_of(who, after, NOW).tools
    assert granted_scopes(who, after.policy, NOW) == ()


def test_its_powers_over_the_registry_are_gone_too() -> None:
    assert has_power(bot(), "registry:admin", whole(GRANT).policy, NOW)
    assert not has_power(bot(), "registry:admin", whole(GRANT, suspension()).policy, NOW)


def test_its_view_is_that_of_somebody_without_a_grant() -> None:
    nobody, stopped = view_of(bot(), whole(), NOW), view_of(bot(), whole(GRANT, suspension()), NOW)

    assert stopped == nobody


def test_others_see_no_difference() -> None:
    other = bot(name="other")

    assert view_of(other, whole(GRANT, suspension()), NOW) == view_of(other, whole(GRANT), NOW)
    elsewhere = bot(namespace="team-b")
    assert (
        decide(elsewhere, tool(), Action.CALL, Policy.compile([suspension()]), NOW).reason
        is Reason.NO_BINDING
    )


def test_lifting_it_gives_back_exactly_what_there_was() -> None:
    before = whole(GRANT)
    stopped = before.apply(
        Publish(base=before.revision, to=Revision(epoch=1, seq=2), bindings=(suspension(),))
    )
    lifted = stopped.apply(
        Publish(
            base=stopped.revision, to=Revision(epoch=1, seq=3), removed=Removed(bindings=(suspension().uid,))
        )
    )

    assert not view_of(bot(), stopped, NOW).tools
    assert view_of(bot(), lifted, NOW) == view_of(bot(), before, NOW)
    assert lifted.hash == before.hash


def test_one_of_two_agents_that_name_an_identity_is_enough() -> None:
    two = (suspension("first", "team-b", CLI), suspension("second", "team-c", CLI))

    assert decide(client(), tool(), Action.CALL, whole(GRANT, *two).policy, NOW).binding == two[0]
    assert not decide(client(), tool(), Action.CALL, whole(GRANT, two[1]).policy, NOW).allowed


@pytest.mark.parametrize("who", [bot(), client(), client(policy=ScopesPolicy.TOKEN)])
def test_a_replica_of_an_earlier_version_which_ignores_the_field_refuses_it_every_tool(who: Identity) -> None:
    read = suspension("bot", "team-a", CLI).model_copy(update={"suspends": False})

    assert decide(who, tool(), Action.CALL, whole(GRANT, read).policy, NOW).reason is Reason.DENIED
    assert not view_of(who, whole(GRANT, read), NOW).tools


def test_a_review_says_who_is_suspended_and_what_the_agent_would_have() -> None:
    review = AccessReview(whole(GRANT, suspension()), NOW)
    told = review.explain(Who(SubjectKind.SERVICE_ACCOUNT, "bot", "team-a"), tool())

    assert (told.reason, told.step, told.rule) == (
        Reason.AGENT_SUSPENDED, 1, "Agent team-a/bot (generation 0) is suspended",
    )  # fmt: skip
    assert {b.rule for b in told.bindings} == {
        "ClusterAgentScopeBinding grant (generation 0) grants use", "Agent team-a/bot (generation 0) is suspended",
    }  # fmt: skip
    rows = {s.who.subject: s.allowed for s in review.who_can(tool()).subjects}
    assert (rows["ServiceAccount/team-a/bot"], rows["ServiceAccount/team-a/other"]) == (False, True)
    states = {h.who.subject: h.state for h in who_holds(review, "use").holders}
    assert states["ServiceAccount/team-a/bot"] == "suspended"
    assert states["ServiceAccount/team-a/other"] == "in_effect"
