"""What stands where in a token is said per issuer; what is not there, or not readable, is nobody and nothing."""

from typing import Any

import pytest

from toolcrib.errors import TokenRejected
from toolcrib.tokens.claims import Claims


def test_claims_are_mapped_by_issuer() -> None:
    mapped = Claims(client=("aud",), user="email", groups="teams", scopes=("x",))
    token = {"email": "a@b.example", "email_verified": True, "teams": ["ops"], "x": "s:use", "aud": ["toolcrib"],
             "azp": "ignored", "sub": "alice"}  # fmt: skip

    assert (mapped.client_of(token), mapped.user_of(token)) == ("toolcrib", "a@b.example")
    assert (mapped.groups_of(token), mapped.scopes_of(token)) == ({"ops"}, {"s:use"})


def test_an_audience_of_several_names_no_client() -> None:
    assert Claims(client=("aud",)).client_of({"aud": ["toolcrib", "x"]}) is None


@pytest.mark.parametrize("azp", ["", 5, None, ["a", "b"], {}])
def test_a_client_claim_that_names_nobody_is_not_made_up_for_by_the_next(azp: Any) -> None:
    assert Claims().client_of({"azp": azp, "client_id": "cli"}) is None
    assert Claims().client_of({"client_id": "cli"}) == "cli"


@pytest.mark.parametrize(
    ("value", "groups"),
    [
        (["ops", "a b", 5, ""], {"ops", "a b"}),
        ("ops", {"ops"}),
        ("", set()),
        (None, set()),
        ([], set()),
        ("system:masters", set()),
        (["system:serviceaccounts:team-a", "/team-a/ops"], {"/team-a/ops"}),
    ],
)
def test_groups_are_a_list_or_one_name_and_never_the_clusters(value: Any, groups: set[str]) -> None:
    assert Claims().groups_of({"groups": value}) == groups


@pytest.mark.parametrize("verified", [None, False, 0, 1, "true", "True", [True], {}, ...])
@pytest.mark.parametrize("name", ["email", "Email", "https://example.com/email"])
def test_an_address_that_is_not_verified_is_a_reason_to_refuse(name: str, verified: Any) -> None:
    token = {name: "a@b.example", "sub": "alice"} | (
        {} if verified is ... else {f"{name}_verified": verified}
    )
    with pytest.raises(TokenRejected, match="not verified"):
        Claims(user=name).user_of(token)
    assert Claims(user=name).user_of(token | {f"{name}_verified": True}) == "a@b.example"
    assert Claims().user_of(token) == "alice", "nobody asks where it is not mapped"


@pytest.mark.parametrize("inner", [{}, {"email_verified": False}])
def test_of_an_address_within_an_object_only_that_objects_word_counts(inner: dict[str, Any]) -> None:
    mapped = Claims(user="profile.email")
    with pytest.raises(TokenRejected, match="not verified"):
        mapped.user_of({"profile": {"email": "a@b.example", **inner}, "email_verified": True})
    token = {"profile": {"email": "a@b.example", "email_verified": True}}
    assert mapped.user_of(token) == "a@b.example"


def test_a_token_without_an_address_names_no_user_and_a_similar_name_is_none() -> None:
    assert Claims(user="email").user_of({"sub": "alice"}) is None
    assert Claims(user="email").user_of({"email": "", "email_verified": False}) is None
    assert Claims(user="voicemail").user_of({"voicemail": "42"}) == "42"


@pytest.mark.parametrize("value", [{"ops": True}, 5, True])
def test_groups_that_cannot_be_read_are_no_reason_to_skip_what_is_denied_to_them(value: Any) -> None:
    with pytest.raises(TokenRejected, match="groups"):
        Claims().groups_of({"groups": value})


@pytest.mark.parametrize(
    ("mapped", "token", "refused"),
    [
        (Claims(), {"_claim_names": {"groups": "s"}}, "groups"),
        (Claims(), {"hasgroups": True}, "groups"),
        (Claims(), {"_claim_names": {"roles": "s"}}, "roles"),
        (Claims(user="email"), {"_claim_names": {"email": "s"}}, "email"),
        (Claims(), {"_claim_names": {"groups": "s"}, "groups": ["ops"]}, None),
        (Claims(), {"_claim_names": {"address": "s"}}, None),
        (Claims(), {"_claim_names": "groups"}, None),
        (Claims(), {"hasgroups": False}, None),
        (Claims(groups=None), {"hasgroups": True, "_claim_names": {"groups": "s"}}, None),
        (Claims(groups="teams"), {"hasgroups": True}, None),
    ],
)
def test_a_mapped_claim_that_is_to_be_fetched_elsewhere_is_a_reason_to_refuse(
    mapped: Claims, token: dict[str, Any], refused: str | None
) -> None:
    if refused is None:
        mapped.refuse_distributed(token)
        return
    with pytest.raises(TokenRejected, match=f"contain its {refused} but a link"):
        mapped.refuse_distributed(token)


def test_groups_that_are_not_mapped_may_be_anything() -> None:
    assert Claims(groups=None).groups_of({"groups": {}}) == frozenset()


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("realm_access.roles", {"realm_access": {"roles": ["ops"]}}),
        ("resource_access.my.client.roles", {"resource_access": {"my.client": {"roles": ["ops"]}, "my": {"x": 1}}}),
        ("https://example.com/groups", {"https://example.com/groups": ["ops"]}),
        ("a.b", {"a.b": ["ops"], "a": {"b": ["else"]}}),
        ("a.b.c", {"a": {"b": {"c": "ops"}}, "a.b": {"d": "else"}}),
    ],
)  # fmt: skip
def test_a_claim_is_found_by_its_whole_name_or_within_objects(name: str, token: dict[str, Any]) -> None:
    assert Claims(groups=name).groups_of(token) == {"ops"}


@pytest.mark.parametrize(
    "token",
    [{}, {"realm_access": ["roles"]}, {"realm_access": None}, {"realm_access": {}}, {"roles": ["ops"]}],
)
def test_a_claim_that_is_nowhere_is_empty(token: dict[str, Any]) -> None:
    mapped = Claims(groups="realm_access.roles", scopes=("realm_access.roles",))

    assert (mapped.groups_of(token), mapped.scopes_of(token)) == (frozenset(), None)


@pytest.mark.parametrize(
    ("token", "scopes"),
    [
        ({"scope": "a:use b:use"}, {"a:use", "b:use"}),
        ({"scope": ""}, set()),
        ({"scope": "  "}, set()),
        ({"scope": []}, set()),
        ({"scope": ["a:use", 5, None]}, {"a:use"}),
        ({"scope": ["a:use b:use"]}, {"a:use b:use"}),
        ({}, None),
        ({"scp": "a:use"}, {"a:use"}),
        ({"scp": ["a:use", "c:use"]}, {"a:use", "c:use"}),
        ({"roles": ["a:use"]}, {"a:use"}),
        ({"scope": "a:use", "roles": ["b:use"]}, {"a:use"}),
        ({"scope": "", "roles": ["b:use"]}, set()),
        ({"scope": {"a:use": True}}, set()),
        ({"scope": 5, "scp": "a:use"}, set()),
        ({"scope": None, "scp": "a:use"}, set()),
    ],
)
def test_scopes_are_read_from_the_first_claim_there_is(
    token: dict[str, Any], scopes: set[str] | None
) -> None:
    assert Claims().scopes_of(token) == scopes
