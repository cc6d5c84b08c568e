"""Confirmations at a real API server: the verb, in one's own name, not by the caller; and the annotation that asks for them."""

from typing import Any

import pytest

from admission_server import HOME, OPERATOR, OTHER, Admission, Given, User, all_but, confirmed, path_of
from manifests import tool

pytestmark = pytest.mark.real

CALLER = "system:serviceaccount:team-a:bot"
PAY = "pay"
RULE = f"{{apiGroups: [toolcrib.dev], resources: [tools], resourceNames: ['{PAY}'], verbs: [confirm]}}"
ANNOTATION = "toolcrib.dev/confirm"


@pytest.fixture(scope="module")
def people(admission: Admission) -> dict[str, User]:
    confirms = (("confirm", "tools", (PAY,)),)
    found = {
        "keeper": admission.user(Given(HOME, confirms)),
        "editor": admission.user(),
        "keeper of another": admission.user(Given(HOME, (("confirm", "tools", ("other",)),))),
        "keeper elsewhere": admission.user(Given(OTHER, confirms)),
        "approver": admission.user(Given(None, (("approve", "tools", ()), ("gate", "scopes", ())))),
        "caller": admission.user(Given(HOME, confirms), name=CALLER),
        "caller by another name": admission.user(Given(HOME, confirms), name=f"oidc:{CALLER}"),
        "caller by a prefix": admission.user(Given(HOME, confirms), name=f"corp-{CALLER}"),
    }
    admission.settle()
    return found


def waiting() -> dict[str, Any]:
    made = confirmed(PAY)
    del made["spec"]["decision"], made["spec"]["decidedBy"]
    return made


def decision(user: User, **changed: str | int) -> dict[str, Any]:
    return {"spec": {"decision": "Confirmed", "decidedBy": user.name, **changed}}


def test_who_holds_confirm_on_the_tool_decides_once_in_their_own_name(
    admission: Admission, people: dict[str, User]
) -> None:
    keeper, call = people["keeper"], waiting()
    admission.there(call)
    signed = admission.patch(keeper, call, decision(keeper, decidedBy="alice"))
    assert (signed.status_code, "must be your own name" in signed.text) == (403, True)
    unsigned = admission.patch(keeper, call, {"spec": {"decision": "Confirmed"}})
    assert unsigned.status_code in (403, 422)

    assert admission.patch(keeper, call, decision(keeper)).status_code == 200

    for change in (decision(keeper, decision="Rejected"), {"spec": {"decision": None, "decidedBy": None}}):
        again = admission.patch(keeper, call, change)
        assert (again.status_code, "the decision is final" in again.text) == (422, True), again.text


@pytest.mark.parametrize("who", ["editor", "keeper of another", "keeper elsewhere", "approver"])
def test_nobody_else_decides(admission: Admission, people: dict[str, User], who: str) -> None:
    user, call = people[who], waiting()
    admission.there(call)
    for word in ("Confirmed", "Rejected"):
        refused = admission.patch(user, call, decision(user, decision=word))
        assert (refused.status_code, RULE in refused.json()["message"]) == (403, True), refused.text
    admission.gone(call)
    born = confirmed(PAY, by=user.name)
    assert admission.create(user, born).status_code == 403, "one that is decided from the start takes it too"


@pytest.mark.parametrize("who", ["caller", "caller by another name", "caller by a prefix"])
def test_the_caller_does_not_confirm_its_own_call(
    admission: Admission, people: dict[str, User], who: str
) -> None:
    user, call = people[who], waiting()
    admission.there(call)
    refused = admission.patch(user, call, decision(user))
    assert (refused.status_code, "cannot confirm its own call" in refused.text) == (403, True), refused.text


@pytest.mark.parametrize("accepted", [None, 1, 23, 25, 2_000])
def test_hidden_arguments_are_confirmed_by_their_number_alone(
    admission: Admission, people: dict[str, User], accepted: int | None
) -> None:
    keeper, call = people["keeper"], waiting()
    call["spec"]["hiddenCharacters"] = 24
    admission.there(call)
    number = {} if accepted is None else {"acceptedHiddenCharacters": accepted}
    refused = admission.patch(keeper, call, decision(keeper, **number))
    assert (refused.status_code, "repeat spec.hiddenCharacters" in refused.text) == (422, True), refused.text
    early = admission.patch(None, call, {"spec": {"acceptedHiddenCharacters": 24}})
    assert (early.status_code, "is set with the decision" in early.text) == (422, True), early.text
    assert admission.patch(keeper, call, decision(keeper, acceptedHiddenCharacters=24)).status_code == 200


def test_a_call_with_hidden_arguments_is_rejected_without_the_number(
    admission: Admission, people: dict[str, User]
) -> None:
    keeper, call = people["keeper"], waiting()
    call["spec"]["hiddenCharacters"] = 24
    admission.there(call)
    assert admission.patch(keeper, call, decision(keeper, decision="Rejected")).status_code == 200


@pytest.mark.parametrize("change", [{"hiddenCharacters": 1}, {"hiddenCharacters": None}])
def test_how_much_is_hidden_never_changes(admission: Admission, change: dict[str, int | None]) -> None:
    call = waiting()
    call["spec"]["hiddenCharacters"] = 24
    admission.there(call)
    refused = admission.patch(None, call, {"spec": change})
    assert (refused.status_code, "cannot be changed" in refused.text) == (422, True), refused.text


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": "[]"},
        {"expiresAt": "2126-01-01T00:00:00Z"},
        {"names": ["x"]},
        {"seal": "1" * 64},
        {"tool": "x"},
        {"hiddenCharacters": 5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_shown_never_changes(
    admission: Admission, people: dict[str, User], change: dict[str, Any]
) -> None:
    call = waiting()
    admission.there(call)
    refused = admission.patch(None, call, {"spec": change})
    assert (refused.status_code, "cannot be changed" in refused.text) == (422, True), refused.text


def annotated(value: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {ANNOTATION: value}}}


def test_the_annotation_takes_gate_to_set_and_to_remove(admission: Admission) -> None:
    gates, does_not = User("gates", (all_but("grant"),)), User("does-not", (all_but("gate"),))
    guarded = tool(PAY, HOME)
    admission.there(guarded)
    assert admission.patch(does_not, guarded, annotated("always")).status_code == 403
    assert admission.patch(does_not, guarded, {"metadata": {"annotations": {"team": "a"}}}).status_code == 200
    assert admission.patch(gates, guarded, annotated("always")).status_code == 200
    assert admission.patch(does_not, guarded, annotated(None)).status_code == 403
    assert admission.patch(does_not, guarded, {"metadata": {"annotations": {"team": "b"}}}).status_code == 200
    wrong = admission.patch(gates, guarded, annotated("sometimes"))
    assert (wrong.status_code, "one value: always" in wrong.text) == (403, True), wrong.text
    assert admission.patch(gates, guarded, annotated(None)).status_code == 200
    created = tool("born", HOME)
    admission.gone(created)
    created["metadata"]["annotations"] = {ANNOTATION: "always"}
    assert admission.create(does_not, created).status_code == 403


def test_the_operator_confirms_nothing(admission: Admission) -> None:
    call = waiting()
    admission.there(call)
    operator = User(OPERATOR)
    refused = admission.patch(operator, call, decision(operator))
    assert (refused.status_code, RULE in refused.text) == (403, True)
    assert admission.request(None, "GET", path_of(call)).status_code == 200
