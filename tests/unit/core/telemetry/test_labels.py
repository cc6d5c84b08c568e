"""The names of identities in metrics: short, printable, and each of one identity alone."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from toolcrib.identity import Identity
from toolcrib.telemetry import labels

CLUSTER = "https://kubernetes.default.svc"
kubernetes = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
issuers = st.sampled_from(
    [CLUSTER, "https://idp", "https://idp:8443", "heist/planner", "a", "a:b", "x" * 250]
)
subjects = st.text(min_size=1, max_size=20) | st.from_regex(r"[:%#/a-z0-9]{1,300}", fullmatch=True)
"""Among them names of accounts, what a cut label looks like, colons and percent signs, and half of a character."""
identities = st.one_of(
    st.builds(
        lambda namespace, name: (CLUSTER, f"system:serviceaccount:{namespace}:{name}", True),
        kubernetes,
        kubernetes,
    ),
    st.tuples(issuers, subjects, st.just(False)),
)
Who = tuple[str, str, bool]


def of(who: Who) -> str:
    issuer, subject, cluster = who
    return Identity(
        issuer=issuer, subject=subject, cluster=cluster, expires_at=1.0, client="heist/planner"
    ).label


@example(("https://idp", "8443:x", False), ("https://idp:8443", "x", False))
@example(("a", "b:c", False), ("a:b", "c", False))
@example(("a", "b%3Ac", False), ("a", "b:c", False))
@example(("heist/planner", "x", False), (CLUSTER, "system:serviceaccount:heist:planner", True))
@example(("a", "x" * 300, False), ("a", "x" * 301, False))
@example(("a", "x" * 300, False), ("a", of(("a", "x" * 300, False))[2:], False))
@example(("a", "\ud800", False), ("a", "?", False))
@given(identities, identities)
def test_no_two_identities_share_a_label(one: Who, other: Who) -> None:
    assert (of(one) == of(other)) == (one == other)


@given(identities)
def test_a_label_is_short_and_shows_what_it_is(who: Who) -> None:
    label = of(who)

    assert len(label) <= labels.LONGEST
    assert re.fullmatch(r"[!-~]+", label)
    if who[2]:
        assert label == "/".join(who[1].split(":")[2:])
    else:
        assert label.startswith(f"{who[0]}:"[:200])


@given(issuers, subjects)
def test_no_label_is_that_of_nobody_or_of_the_rest(issuer: str, subject: str) -> None:
    assert of((issuer, subject, False)) not in ("anonymous", "other")
