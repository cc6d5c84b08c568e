"""Whose memory a call is about."""

import pytest

from toolcrib_cli.example_tools.problems import ToolError
from toolcrib_cli.memory.caller import owner_of
from toolcrib_cli.session_store.memories import Owner

ACCOUNT = "system:serviceaccount:heist:hacker"


def claims(subject: str = ACCOUNT) -> dict[str, str]:
    return {"sub": subject, "sub_iss": "https://issuer"}


@pytest.mark.parametrize("name", ["hacker", "heist/hacker", ACCOUNT])
def test_a_service_account_may_call_itself_by_its_name_with_its_namespace_or_by_its_subject(
    name: str,
) -> None:
    assert owner_of(claims(), name) == Owner("https://issuer", ACCOUNT)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "name",
    [
        "",
        "planner",
        "other/hacker",
        "Hacker",
        "heist",
        "heist:hacker",
        "hacker ",
        "system:serviceaccount:heist:planner",
    ],
)
def test_another_agents_name_is_refused(name: str) -> None:
    with pytest.raises(ToolError) as refused:
        owner_of(claims(), name)

    assert (refused.value.status, refused.value.code) == (403, "other_agent")


@pytest.mark.guarantee
def test_other_subjects_are_named_by_their_subject_alone() -> None:
    assert owner_of(claims("auth0|heist:hacker"), "auth0|heist:hacker").subject == "auth0|heist:hacker"
    for name in ("hacker", "heist/hacker"):
        with pytest.raises(ToolError):
            owner_of(claims("auth0|heist:hacker"), name)
