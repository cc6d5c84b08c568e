"""Who holds a scope: every grant that decides is listed as in effect, and one that is not says why."""

import pytest

from access_api import ISSUERS, ApiObjects
from access_worlds import CLUSTER_ISSUER, OAUTH, SCOPES, random_world
from published import account, binding, tool
from toolcrib.access import subjects
from toolcrib.access.answers import WhoHolds
from toolcrib.access.holders import scopes, who_holds
from toolcrib.access.review import AccessReview
from toolcrib.access.subjects import Tokens
from toolcrib.authorizer import Reason, granting
from toolcrib.resources.bindings import SubjectKind
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import Publish, PublishedAccount, PublishedBinding, PublishedSubject, Revision

NOW = 1_800_000_000.0
TOKENS = Tokens(cluster_issuer=CLUSTER_ISSUER, policies={i.issuer: i.scopes for i in ISSUERS.values()})
TOOLS = (tool("team-a/read", scopes=("use",)), tool("team-b/write", scopes=("use", "other")))


def asked(*bindings: PublishedBinding, accounts: tuple[PublishedAccount, ...] | None = None) -> AccessReview:
    step = Publish(to=Revision(epoch=1, seq=1), tools=TOOLS, bindings=bindings, accounts=accounts)
    return AccessReview(Snapshot().apply(step), NOW, TOKENS)


def states(found: WhoHolds) -> dict[str, str]:
    return {h.binding.ref.partition(" ")[2]: h.state for h in found.holders}


def test_a_grant_that_decides_is_in_effect_and_one_that_is_not_never_decides() -> None:
    held = 0
    for seed in range(60):
        api = ApiObjects()
        api.apply(random_world(seed).manifests)
        review = AccessReview(api.snapshot, NOW, TOKENS)
        lines = {
            (subjects.parse(h.who.subject, h.who.issuer).key, h.binding.uid, scope): h.holds
            for scope in SCOPES
            for h in who_holds(review, scope).holders
        }
        for who in review.subjects():
            for one in api.snapshot.tools.values():
                decision = review.decide(review.identity(who), one)
                if not decision.allowed or decision.binding is None:
                    continue
                held += 1
                granting = set(decision.binding.scopes) & set(one.scopes)
                assert any(lines.get((who.key, decision.binding.uid, s)) for s in granting), (seed, who)
    assert held > 100


def test_a_grant_of_which_every_tool_is_denied_is_not_in_effect_however_it_is_denied() -> None:
    for seed in range(60):
        api = ApiObjects()
        api.apply(random_world(seed).manifests)
        review = AccessReview(api.snapshot, NOW, TOKENS)
        for scope in SCOPES:
            for holder in who_holds(review, scope).holders:
                identity = review.identity(subjects.parse(holder.who.subject, holder.who.issuer))
                by = next(b for b in api.snapshot.bindings.values() if b.uid == holder.binding.uid)
                reached = [
                    t
                    for t in api.snapshot.tools.values()
                    if scope in t.scopes and t.active and granting(by)(t)
                ]
                denied = [review.decide(identity, t).reason is Reason.DENIED for t in reached]
                if holder.state in ("in_effect", "denied"):
                    assert (holder.state == "denied") == (bool(denied) and all(denied)), (seed, scope)


def test_denials_by_name_and_of_two_bindings_count_together() -> None:
    wide = binding("wide", None)
    by_name = binding("by-name", scopes=(), deny=("read",))
    by_scope = binding("by-scope", namespace="team-b", scopes=(), deny_scopes=("use",))

    (half,) = who_holds(asked(wide, by_name), "use").holders
    (whole,) = who_holds(asked(wide, by_name, by_scope), "use").holders

    assert (half.state, half.denied_by) == ("in_effect", ())
    assert (whole.state, {b.name for b in whole.denied_by}) == ("denied", {"by-name", "by-scope"})


def test_it_says_over_what_and_until_when() -> None:
    everywhere = binding("all", None, expires_at=NOW + 60, servers=("team-a/github",), allow=("read*",))

    found = who_holds(asked(binding(), everywhere), "use")

    here, wide = sorted(found.holders, key=lambda h: h.binding.kind)
    assert (here.namespaces, here.servers, here.until) == (("team-a",), None, None)
    assert (wide.namespaces, wide.servers, wide.allow) == (None, ("team-a/github",), ("read*",))
    assert wide.until == "2027-01-15T08:01:00Z"
    assert (found.tools, here.holds, wide.holds) == (2, True, True)
    assert [
        h.binding.name for h in who_holds(asked(binding(), everywhere), "use", namespace="team-b").holders
    ] == ["all"]


def test_a_grant_that_is_not_in_effect_says_why() -> None:
    found = who_holds(
        asked(
            binding("expired", expires_at=NOW),
            binding("later", not_before=NOW + 1),
            binding("open"),
            binding("denied", namespace="team-b"),
            binding("denial", namespace="team-b", scopes=(), deny_scopes=("use",)),
        ),
        "use",
    )

    assert states(found) == {
        "team-a/expired": "expired",
        "team-a/later": "not_yet",
        "team-a/open": "in_effect",
        "team-b/denied": "denied",
    }
    assert {h.binding.name for h in found.holders if h.denied_by} == {"denied"}


def test_an_account_that_is_gone_and_an_issuer_that_is_not_trusted_hold_nothing() -> None:
    stranger = PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, client_id="x", issuer="https://typo.example")
    review = asked(binding(), binding("typo", subjects=(stranger,)), accounts=())
    closed = AccessReview(review.snapshot, NOW, Tokens(TOKENS.cluster_issuer, TOKENS.policies, closed=True))

    assert states(who_holds(closed, "use")) == {"team-a/grant": "account_gone", "team-a/typo": "not_trusted"}


def test_a_client_of_an_identity_provider_needs_the_scope_in_its_token_too() -> None:
    ide = PublishedSubject(kind=SubjectKind.OAUTH_CLIENT, client_id="ide", issuer=OAUTH)

    rows = who_holds(asked(binding("both", subjects=(ide, account()))), "use").holders

    assert {h.who.subject: h.token_needs_scope for h in rows} == {
        "OAuthClient/ide": True,
        "ServiceAccount/team-a/bot": False,
    }


def test_pages_together_are_the_whole() -> None:
    review = asked(*(binding(f"b{i}") for i in range(5)))
    whole = who_holds(review, "use")
    pages, after = [], ""
    while True:
        page = who_holds(review, "use", after=after, limit=2)
        pages += page.holders
        if page.next_cursor is None:
            break
        after = page.next_cursor

    assert (tuple(pages), len(pages)) == (whole.holders, 5)


@pytest.mark.parametrize(("scope", "noted"), [("use", False), ("uze", True)])
def test_a_scope_that_nothing_has_is_noted(scope: str, noted: bool) -> None:
    review = asked(binding())

    assert scopes(review) == ["other", "use"]
    found = who_holds(review, scope).notes
    assert found == (("no tool and no binding has the scope uze; did you mean use?",) if noted else ())
