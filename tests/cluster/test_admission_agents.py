"""Agents at a real API server: whoever may write one may stop it, and only who holds `resume` lets it in again."""

from typing import Any

import pytest

from admission_server import (
    API,
    CLIENT,
    HOME,
    NO_FINALIZERS,
    OPERATOR,
    OTHER,
    Admission,
    Given,
    User,
    agent,
    all_but,
    path_of,
)
from realparts.processes import wait_until
from toolcrib.resources.admission import FINALIZER

pytestmark = pytest.mark.real

BOT = "bot"
SUSPENDED = [
    {
        "type": "Suspended", "status": "True", "reason": "Suspended", "message": "held",
        "lastTransitionTime": "2026-11-27T10:00:00Z",
    }
]  # fmt: skip
RULE = f"{{apiGroups: [toolcrib.dev], resources: [agents], resourceNames: ['{BOT}'], verbs: [resume]}}"
STOP, RESUME = {"spec": {"suspended": True}}, {"spec": {"suspended": False}}


@pytest.fixture(scope="module")
def people(admission: Admission) -> dict[str, User]:
    found = {
        "editor": admission.user(),
        "keeper": admission.user(Given(HOME, (("resume", "agents", (BOT,)),))),
        "keeper of another": admission.user(Given(HOME, (("resume", "agents", ("other",)),))),
        "keeper elsewhere": admission.user(Given(OTHER, (("resume", "agents", ()),))),
        "who holds all other verbs": admission.user(
            Given(
                None,
                tuple(
                    (v, r, ()) for v, r in (("grant", "scopes"), ("equip", "subjects"), ("approve", "tools"))
                ),
            )
        ),
    }
    admission.settle()
    return found


@pytest.mark.parametrize(
    "who", ["editor", "keeper of another", "keeper elsewhere", "who holds all other verbs"]
)
def test_an_editor_stops_an_agent_and_does_not_start_it_again(
    admission: Admission, people: dict[str, User], who: str
) -> None:
    user = people[who]
    admission.there(agent(BOT))
    assert admission.patch(user, agent(BOT), STOP).status_code == 200
    assert admission.patch(user, agent(BOT), {"spec": {"reason": "incident"}}).status_code == 200

    tried = {
        "false": admission.patch(user, agent(BOT), RESUME),
        "absent": admission.patch(user, agent(BOT), {"spec": {"suspended": None}}),
        "another spec": admission.request(
            user,
            "PUT",
            path_of(agent(BOT)),
            {**admission.request(None, "GET", path_of(agent(BOT))).json(), "spec": {}},
        ),
        "deleted": admission.request(user, "DELETE", path_of(agent(BOT))),
        "all deleted": admission.request(user, "DELETE", f"{API}/namespaces/{HOME}/agents"),
    }

    for way, answer in tried.items():
        assert answer.status_code == 403, (way, answer.text)
    assert RULE in tried["false"].json()["message"]
    assert admission.request(None, "GET", path_of(agent(BOT))).json()["spec"]["suspended"] is True


def test_an_editor_may_create_one_that_is_suspended(admission: Admission, people: dict[str, User]) -> None:
    admission.gone(agent(BOT))
    assert admission.create(people["editor"], agent(BOT, suspended=True)).status_code == 201
    assert admission.patch(people["editor"], agent(BOT), RESUME).status_code == 403


@pytest.mark.parametrize("way", ["edit", "delete"])
def test_who_holds_resume_on_that_agent_ends_its_suspension(
    admission: Admission, people: dict[str, User], way: str
) -> None:
    admission.there(agent(BOT, suspended=True))
    if way == "edit":
        answer = admission.patch(people["keeper"], agent(BOT), RESUME)
    else:
        answer = admission.request(people["keeper"], "DELETE", path_of(agent(BOT)))
    assert answer.status_code == 200, answer.text


def test_an_agent_that_is_not_suspended_is_edited_and_deleted_by_everybody_who_may_write_it(
    admission: Admission, people: dict[str, User]
) -> None:
    admission.there(agent(BOT))
    assert admission.patch(people["editor"], agent(BOT), {"spec": {"mode": "auto"}}).status_code == 200
    assert admission.request(people["editor"], "DELETE", path_of(agent(BOT))).status_code == 200


def test_what_the_operator_still_holds_as_suspended_takes_resume_for_every_edit_that_leaves_it_false(
    admission: Admission, people: dict[str, User]
) -> None:
    """A resumption that no policy checked: writing the spec again would end it."""
    admission.there(agent(BOT))
    told = admission.patch(None, agent(BOT), {"status": {"conditions": SUSPENDED}}, sub="/status")
    assert told.status_code == 200, told.text

    edit = {"spec": {"reason": "again"}}
    assert admission.patch(people["editor"], agent(BOT), edit).status_code == 403
    assert admission.request(people["editor"], "DELETE", path_of(agent(BOT))).status_code == 403
    labels = {"metadata": {"labels": {"team": "a"}}}
    assert admission.patch(people["editor"], agent(BOT), labels).status_code == 200
    assert admission.patch(people["editor"], agent(BOT), STOP).status_code == 200
    assert admission.patch(people["keeper"], agent(BOT), RESUME).status_code == 200


def test_the_finalizer_that_holds_a_suspended_agent_is_removed_by_the_operator_alone(
    admission: Admission, people: dict[str, User]
) -> None:
    held = agent(BOT, suspended=True)
    held["metadata"]["finalizers"] = [FINALIZER]
    admission.there(held)
    try:
        for who in ("editor", "keeper"):
            assert admission.patch(people[who], agent(BOT), NO_FINALIZERS).status_code == 403
    finally:
        assert admission.patch(None, agent(BOT), NO_FINALIZERS).status_code == 200


def test_the_operator_does_not_write_specs_of_agents(admission: Admission) -> None:
    admission.there(agent(BOT, suspended=True))
    assert admission.patch(User(OPERATOR), agent(BOT), RESUME).status_code == 403


@pytest.mark.parametrize(
    "change",
    [{"serviceAccountName": "other"}, {"serviceAccountName": None}, {"subjects": None}],
    ids=["another account", "no account", "no subjects"],
)
def test_whom_an_agent_means_never_changes(admission: Admission, change: dict[str, Any]) -> None:
    admission.there(agent(BOT, suspended=True, serviceAccountName="runner", subjects=[CLIENT]))
    answer = admission.patch(None, agent(BOT), {"spec": change})
    assert answer.status_code == 422, answer.text
    assert "cannot be changed, added or removed" in answer.text


def test_naming_a_client_or_user_takes_equip_on_it_in_the_whole_cluster(admission: Admission) -> None:
    name = f"OAuthClient:{CLIENT['issuer']}#{CLIENT['clientId']}"
    may = admission.user(Given(None, (("equip", "subjects", (name,)),)))
    within = admission.user(Given(HOME, (("equip", "subjects", ()),)))
    admission.settle()
    named = agent("named", subjects=[CLIENT])
    admission.gone(named)
    for user in (within, User("somebody", (all_but("equip"),))):
        refused = admission.create(user, named)
        assert (refused.status_code, name in refused.text) == (403, True), refused.text
    assert admission.create(may, named).status_code == 201
    admission.gone(named)


def test_a_namespace_that_is_deleted_takes_its_agents_along_but_not_those_that_stop_clients(
    admission: Admission,
) -> None:
    controller = admission.user()
    place = "leaving"
    admission.server.create_namespace(place)
    mine, wider = (
        agent("mine", place, suspended=True),
        agent("wider", place, suspended=True, subjects=[CLIENT]),
    )
    for each in (mine, wider):
        assert admission.create(None, each).status_code == 201
    admission.settle()
    assert admission.request(controller, "DELETE", path_of(mine)).status_code == 403
    admission.request(None, "DELETE", f"/api/v1/namespaces/{place}")
    wait_until(lambda: admission.request(controller, "DELETE", path_of(mine)).status_code == 200, 60, 0.2)
    assert admission.request(controller, "DELETE", path_of(wider)).status_code == 403


def test_having_an_agent_run_takes_equip_on_its_account(admission: Admission) -> None:
    """Else an editor of the namespace could act as every account of it."""
    runner = admission.user(Given(HOME, (("equip", "subjects", ("runner",)),)))
    other = admission.user(
        Given(HOME, (("equip", "subjects", ("bot",)),)), Given(OTHER, (("equip", "subjects", ()),))
    )
    admission.settle()
    run: dict[str, Any] = {"run": {}, "mode": "auto", "model": {"name": "m"}}
    wanted = agent(BOT, serviceAccountName="runner", **run)
    admission.gone(wanted)
    refused = admission.create(other, wanted)
    assert refused.status_code == 403, refused.text
    assert "resourceNames: ['runner'], verbs: [equip]" in refused.json()["message"]
    assert admission.create(runner, wanted).status_code == 201

    for changed in (
        {"run": {"replicas": 2}}, {"run": {"attempt": 2}}, {"mode": "static"}, {"core": ["a/b"]}, {"model": {"name": "other"}}, {"mode": None},
    ):  # fmt: skip
        assert admission.patch(other, wanted, {"spec": changed}).status_code == 403, changed
        assert admission.patch(runner, wanted, {"spec": changed}).status_code == 200, changed
    assert admission.patch(other, wanted, {"spec": {"suspended": True, "reason": "x"}}).status_code == 200
    assert admission.patch(other, wanted, {"spec": {"run": None}}).status_code == 200, "ending it is free"
    assert admission.patch(other, wanted, {"spec": {"run": {}}}).status_code == 403
    admission.gone(agent(BOT))


def test_an_agent_without_an_account_is_run_as_that_of_its_name(admission: Admission) -> None:
    may = admission.user(Given(HOME, (("equip", "subjects", (BOT,)),)))
    admission.settle()
    for name, code in ((BOT, 201), ("other", 403)):
        admission.gone(agent(name))
        assert admission.create(may, agent(name, run={})).status_code == code
    admission.gone(agent(BOT))


@pytest.fixture(scope="module")
def operator(admission: Admission) -> User:
    """With the right to write Deployments, as the chart's Role gives it."""
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create", "delete"]}
    admission.make(None, "ClusterRole", {"metadata": {"name": "writes-deployments"}, "rules": [rule]})
    admission.bind("User", OPERATOR, "writes-deployments", HOME)
    admission.settle()
    return User(OPERATOR)


PRIVILEGED = {"name": "p", "image": "i", "securityContext": {"privileged": True}}


def workload(**pod: Any) -> dict[str, Any]:
    owner = {
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent", "name": BOT, "uid": "uid-1", "controller": True,
    }  # fmt: skip
    labels = {"app": "x"}
    spec = {
        "automountServiceAccountToken": False, "securityContext": {"runAsNonRoot": True},
        "containers": [{"name": "agent", "image": "i"}],
    } | pod  # fmt: skip
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "namespace": HOME, "ownerReferences": [owner]},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (workload(), 201),
        (workload(hostNetwork=True), 403),
        (workload(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), 403),
        (workload(hostPID=True), 403),
        (workload(hostIPC=True), 403),
        (workload(containers=[PRIVILEGED]), 403),
        (workload(initContainers=[PRIVILEGED]), 403),
        (workload(automountServiceAccountToken=True), 403),
        (workload(securityContext={}), 403),
        ({**workload(), "metadata": {"name": "w", "namespace": HOME}}, 403),
    ],
    ids=[
        "an agent's",
        "host network",
        "host folder",
        "host processes",
        "host IPC",
        "privileged",
        "privileged at its start",
        "token",
        "root",
        "nobody's",
    ],
)
def test_the_operator_writes_no_workload_but_a_confined_one_of_an_agent(
    admission: Admission, operator: User, made: dict[str, Any], code: int
) -> None:
    place = f"/apis/apps/v1/namespaces/{HOME}/deployments"
    answer = admission.request(operator, "POST", place, made)
    assert answer.status_code == code, answer.text
    assert code == 201 or "the operator may not" in answer.json()["message"]
    if code == 201:
        theirs = {**made, "metadata": {"name": "theirs", "namespace": HOME}}
        assert admission.request(None, "POST", place, theirs).status_code == 201
        for name, deleted in (("theirs", 403), ("w", 200)):
            assert admission.request(operator, "DELETE", f"{place}/{name}").status_code == deleted
        admission.request(None, "DELETE", f"{place}/theirs")
