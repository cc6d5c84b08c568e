"""Only who holds `approve` on a Tool says what is approved, and needs nothing else; two field managers share one object."""

from typing import Any

import pytest

from admission_server import APPLY, EVERYTHING, HOME, MERGE, ROOT, Admission, Given, User, canary, path_of
from manifests import manifest, tool
from toolcrib.resources import API_VERSION

pytestmark = pytest.mark.real

NAME = "calculator"
ONE, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
APPROVE = (("approve", "tools", (NAME,)),)


def made(**spec: Any) -> dict[str, Any]:
    return tool(NAME, HOME, **{"approval": "Manual"} | spec)


def url(approval: str | None) -> dict[str, Any]:
    extra = {} if approval is None else {"import": {"approval": approval}}
    return manifest(
        "ToolServer",
        "outside",
        HOME,
        mcp={"url": "https://mcp.example/mcp"},
        defaults={"scopes": ["a:use"]},
        **extra,
    )


@pytest.fixture(scope="module")
def people(admission: Admission) -> dict[str, User]:
    found = {
        "approver": admission.user(Given(HOME, APPROVE)),
        "approver of another": admission.user(Given(HOME, (("approve", "tools", ("other",)),))),
        "author": admission.user(Given(None, EVERYTHING)),
        "approver of all": admission.user(Given(HOME, (("approve", "tools", ()), *EVERYTHING))),
    }
    admission.settle()
    return found


def test_an_approver_approves_without_gate_and_changes_nothing_else(
    admission: Admission, people: dict[str, User]
) -> None:
    admission.there(made())
    approver = people["approver"]
    assert admission.patch(approver, made(), {"spec": {"approvedDigest": ONE}}).status_code == 200
    both = admission.patch(approver, made(), {"spec": {"approvedDigest": OTHER, "description": "evil"}})
    assert both.status_code == 403
    assert "gate" in both.text
    elsewhere = {"fallback": ["other"], "annotations": {"readOnlyHint": True}}
    led = admission.patch(approver, made(), {"spec": elsewhere})
    assert led.status_code == 403, "a fallback decides where calls go"
    assert "gate" in led.text


def test_an_approver_can_change_the_metadata_as_the_guide_says(
    admission: Admission, people: dict[str, User]
) -> None:
    admission.there(made())
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1"}
    metadata = {
        "labels": {"a": "b"}, "annotations": {"a": "b"}, "ownerReferences": [owner], "finalizers": ["a.example/b"],
    }  # fmt: skip

    patched = admission.patch(people["approver"], made(), {"metadata": metadata})

    assert patched.status_code == 200
    held = patched.json()["metadata"]
    assert {key: held[key] for key in metadata} == metadata
    # before anything that may fail: the finalizer would keep the tool for the next test
    taken_back = {"labels": None, "annotations": None, "ownerReferences": None, "finalizers": None}
    assert admission.patch(people["approver"], made(), {"metadata": taken_back}).status_code == 200
    guide = (ROOT / "docs/guides/approve-a-change.md").read_text(encoding="utf-8")
    assert "labels, annotations, owner references and finalizers" in guide


@pytest.mark.parametrize("who", ["author", "approver of another"])
def test_nobody_else_approves_and_the_refusal_names_the_rule(
    who: str, admission: Admission, people: dict[str, User]
) -> None:
    admission.there(made())
    refused = admission.patch(people[who], made(), {"spec": {"approvedDigest": ONE}})
    assert refused.status_code == 403
    assert f"resourceNames: ['{NAME}'], verbs: [approve]" in refused.text
    admission.gone(made())
    assert admission.create(people[who], made(approvedDigest=ONE)).status_code == 403


def test_an_author_writes_the_tool_and_keeps_or_removes_an_approval(
    admission: Admission, people: dict[str, User]
) -> None:
    admission.there(made(approvedDigest=ONE))
    author = people["author"]
    assert admission.patch(author, made(), {"spec": {"description": "other"}}).status_code == 200
    assert admission.patch(author, made(), {"spec": {"approvedDigest": None}}).status_code == 200
    assert admission.patch(author, made(), {"spec": {"approvedDigest": ONE}}).status_code == 403


@pytest.mark.parametrize("approval", ["Automatic", None])
def test_giving_up_that_approval_is_needed_takes_the_right_to_approve(
    approval: str | None, admission: Admission, people: dict[str, User]
) -> None:
    admission.there(made())
    change = {"spec": {"approval": approval}}
    assert admission.patch(people["author"], made(), change).status_code == 403
    assert admission.patch(people["approver of all"], made(), change).status_code == 200
    # and the way there is free
    assert admission.patch(people["author"], made(), {"spec": {"approval": "Manual"}}).status_code == 200


@pytest.mark.parametrize("before", ["Manual", None])
def test_ending_the_approval_of_a_server_outside_takes_the_right_to_approve_all(
    before: str | None, admission: Admission, people: dict[str, User]
) -> None:
    admission.there(url(before))
    change = {"spec": {"import": {"approval": "Automatic"}}}
    assert admission.patch(people["author"], url(before), change).status_code == 403
    assert admission.patch(people["approver of all"], url(before), change, MERGE).status_code == 200


def test_scopes_of_a_server_take_gate_and_those_of_overrides_alone_take_all(
    admission: Admission, people: dict[str, User]
) -> None:
    few = admission.user(Given(HOME, (("gate", "scopes", ("a:use",)),)))
    admission.settle()
    admission.gone(url(None))
    plain = url(None)
    further = url(None)
    further["spec"]["overrides"] = [{"tool": "x", "scopes": ["b:use"]}]
    assert admission.create(people["approver"], plain, dryRun="All").status_code == 403
    assert admission.create(few, plain, dryRun="All").status_code == 201
    assert admission.create(few, further, dryRun="All").status_code == 403
    assert admission.create(people["author"], further, dryRun="All").status_code == 201


def test_git_owns_the_approval_while_another_manager_owns_the_definition(
    admission: Admission, people: dict[str, User]
) -> None:
    """By server-side apply: a definition that is applied again leaves the approval alone, and the other way round."""
    admission.gone(made())
    whole = made()
    approval = {
        "apiVersion": API_VERSION,
        "kind": "Tool",
        "metadata": {"name": NAME},
        "spec": {"approvedDigest": ONE},
    }

    def applied(user: User, manager: str, body: dict[str, Any]) -> int:
        return admission.request(
            user, "PATCH", path_of(whole), body, APPLY, fieldManager=manager, force="true"
        ).status_code

    assert applied(people["author"], "import", whole) == 201
    assert applied(people["approver"], "approvals", approval) == 200
    changed = made(description="another description")
    assert applied(people["author"], "import", changed) == 200
    held = admission.request(None, "GET", path_of(whole)).json()["spec"]
    assert (held["approvedDigest"], held["description"]) == (ONE, "another description")
    assert applied(people["approver"], "approvals", {**approval, "spec": {"approvedDigest": OTHER}}) == 200
    held = admission.request(None, "GET", path_of(whole)).json()["spec"]
    assert (held["approvedDigest"], held["description"]) == (OTHER, "another description")


def test_a_candidate_of_a_tool_is_approved_by_those_alone_who_approve_the_tool(
    admission: Admission, people: dict[str, User]
) -> None:
    tried = canary("tried", tool=NAME)
    assert admission.create(people["author"], tried).status_code == 201, "trying takes no approval"
    for who in ("author", "approver of another"):
        refused = admission.patch(people[who], tried, {"spec": {"approvedDigest": ONE}})
        assert refused.status_code == 403, who
        assert f"resourceNames: ['{NAME}'], verbs: [approve]" in refused.text
    assert admission.patch(people["approver"], tried, {"spec": {"approvedDigest": ONE}}).status_code == 200
    kept = admission.patch(people["author"], tried, {"metadata": {"labels": {"a": "b"}}})
    assert kept.status_code == 200, "who changes something else is not asked"
    assert admission.patch(people["author"], tried, {"spec": {"approvedDigest": None}}).status_code == 200
    born = canary("born-approved", tool=NAME, approvedDigest=ONE)
    assert admission.create(people["author"], born).status_code == 403
    assert admission.create(people["approver"], born).status_code == 201


@pytest.mark.parametrize(
    "change",
    [
        {"share": 50},
        {"guard": 50},
        {"duration": "1m"},
        {"tool": "other"},
        {"candidate": {"description": "Third words"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_canary_does_not_change_while_it_runs(admission: Admission, change: dict[str, Any]) -> None:
    fixed = admission.there(canary("fixed"))
    refused = admission.patch(None, fixed, {"spec": change})
    assert refused.status_code == 422
    assert "delete it and create another" in refused.text
