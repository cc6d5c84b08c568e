"""Only who holds `release` on bindings in the whole cluster removes the revocation finalizer; the operator's role holds it."""

import copy
from typing import Any

import pytest

from admission_server import (
    APPLY,
    EVERYTHING,
    HOME,
    JSON_PATCH,
    MERGE,
    NO_FINALIZERS,
    ROOT,
    Admission,
    Given,
    Manifest,
    User,
    cluster_grant,
    collection,
    grant,
    path_of,
)
from realparts.processes import wait_until
from toolcrib.resources.admission import FINALIZER

pytestmark = pytest.mark.real

RELEASE = (("release", "bindings", ()),)
OTHERS = "example.com/kept"
MADE = {
    "AgentScopeBinding": grant("released", ["read:use"], ["bot"]),
    "ClusterAgentScopeBinding": cluster_grant("released", ["read:use"], ["bot"]),
}


@pytest.fixture(scope="module")
def people(admission: Admission) -> dict[str, User]:
    found = {
        "editor": admission.user(),
        "all other verbs": admission.user(Given(None, EVERYTHING)),
        "release in the namespace": admission.user(Given(HOME, (*EVERYTHING, *RELEASE))),
        "release of one name": admission.user(Given(None, (("release", "bindings", ("released",)),))),
        "called like the operator": admission.user(name=f"system:serviceaccount:{HOME}:toolcrib-operator"),
        "release in the cluster": admission.user(Given(None, RELEASE)),
    }
    admission.settle()
    return found


@pytest.fixture(params=MADE)
def held(request: pytest.FixtureRequest, admission: Admission) -> Manifest:
    """A binding that is in use, so that it carries the finalizer, beside somebody else's."""
    manifest = copy.deepcopy(MADE[request.param])
    manifest["metadata"]["finalizers"] = [FINALIZER, OTHERS]
    admission.request(None, "PATCH", path_of(manifest), NO_FINALIZERS, MERGE)
    admission.there(manifest)
    return manifest


def finalizers(admission: Admission, manifest: Manifest) -> list[str]:
    found: list[str] = (
        admission.request(None, "GET", path_of(manifest)).json()["metadata"].get("finalizers", [])
    )
    return found


WAYS: dict[str, tuple[str, Any]] = {
    "merge patch of all": (MERGE, NO_FINALIZERS),
    "merge patch of ours": (MERGE, {"metadata": {"finalizers": [OTHERS]}}),
    "with a change of the spec": (
        MERGE,
        {**NO_FINALIZERS, "spec": {"servers": None, "limits": {"callsPerDay": 3}}},
    ),
    "json patch": (JSON_PATCH, [{"op": "remove", "path": "/metadata/finalizers/0"}]),
    "json patch of another name": (
        JSON_PATCH,
        [{"op": "replace", "path": "/metadata/finalizers/0", "value": "a.b/c"}],
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("who", ["editor", "all other verbs", "release in the namespace", "release of one name",
                                 "called like the operator"])  # fmt: skip
def test_an_editor_cannot_remove_it_and_is_told_what_to_do(
    who: str, way: str, held: Manifest, admission: Admission, people: dict[str, User]
) -> None:
    kind, patch = WAYS[way]
    answer = admission.patch(people[who], held, patch, kind)
    assert answer.status_code == 403, answer.text
    if way != "with a change of the spec":
        said = answer.json()["message"]
        place = "the whole cluster" if held["kind"].startswith("Cluster") else "the namespace team-a"
        assert f"you may not remove the finalizer {FINALIZER} from released in {place}" in said
        assert (
            "the operator removes it from a deleted object once every registry replica has confirmed" in said
        )
        assert "use kubectl apply or edit instead of replace" in said
        assert "{apiGroups: [toolcrib.dev], resources: [bindings], verbs: [release]} in a ClusterRole" in said
    assert finalizers(admission, held) == [FINALIZER, OTHERS]


def test_a_replacement_without_it_is_refused_and_one_with_it_passes(
    held: Manifest, admission: Admission, people: dict[str, User]
) -> None:
    now = admission.request(None, "GET", path_of(held)).json()
    without = copy.deepcopy(now)
    del without["metadata"]["finalizers"]
    refused = admission.request(people["editor"], "PUT", path_of(held), without)
    assert refused.status_code == 403
    assert "use kubectl apply or edit" in refused.text
    now["metadata"]["labels"] = {"team": "a"}
    assert admission.request(people["editor"], "PUT", path_of(held), now).status_code == 200


def test_ways_that_touch_no_finalizer_pass_and_remove_none(
    held: Manifest, admission: Admission, people: dict[str, User]
) -> None:
    editor = people["editor"]
    applied = {k: held[k] for k in ("apiVersion", "kind", "spec")} | {
        "metadata": {"name": "released", "finalizers": []}
    }
    status = admission.request(None, "GET", path_of(held)).json()
    del status["metadata"]["finalizers"]
    assert admission.patch(editor, held, {"metadata": {"labels": {"a": "b"}}}).status_code == 200
    assert admission.patch(editor, held, applied, APPLY).status_code == 200
    del status["metadata"]["resourceVersion"]
    assert admission.request(None, "PUT", path_of(held) + "/status", status).status_code in (200, 422)
    assert finalizers(admission, held) == [FINALIZER, OTHERS]
    # somebody else's is nobody's business here
    assert admission.patch(editor, held, {"metadata": {"finalizers": [FINALIZER]}}).status_code == 200
    assert finalizers(admission, held) == [FINALIZER]


def test_a_deleted_binding_waits_until_somebody_with_the_right_releases_it(
    held: Manifest, admission: Admission, people: dict[str, User]
) -> None:
    assert (
        admission.patch(people["editor"], held, {"metadata": {"finalizers": [FINALIZER]}}).status_code == 200
    )
    for query in ({}, {"gracePeriodSeconds": "0"}, {"propagationPolicy": "Background"}):
        assert admission.request(people["editor"], "DELETE", path_of(held), **query).is_success
    assert admission.patch(people["editor"], held, NO_FINALIZERS).status_code == 403
    assert admission.request(None, "GET", path_of(held)).json()["metadata"]["deletionTimestamp"]
    assert admission.patch(people["release in the cluster"], held, NO_FINALIZERS).status_code == 200
    assert admission.request(None, "GET", path_of(held)).status_code == 404


def test_the_clusters_controllers_do_their_work_and_leave_it(admission: Admission) -> None:
    """The namespace controller deletes and waits; the garbage collector removes its own finalizers and references."""
    manifest = copy.deepcopy(MADE["AgentScopeBinding"])
    name = admission.server.create_namespace("ending")
    manifest["metadata"] |= {"namespace": name, "finalizers": [FINALIZER, "foregroundDeletion"]}
    admission.there(manifest)
    controller, collector = (
        User(
            f"system:serviceaccount:kube-system:{account}",
            ("system:serviceaccounts:kube-system",),
            writes=False,
        )
        for account in ("namespace-controller", "generic-garbage-collector")
    )
    for user in (controller, collector):
        role = f"system:controller:{user.name.rsplit(':', 1)[1]}"
        wait_until(
            lambda role=role: (
                admission.request(  # type: ignore[misc]
                    None, "GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}"
                ).is_success
            )
        )
    assert admission.request(None, "DELETE", f"/api/v1/namespaces/{name}").is_success
    assert admission.request(controller, "DELETE", collection(manifest)).is_success
    ours = {"metadata": {"finalizers": [FINALIZER]}}
    assert admission.patch(collector, manifest, ours).status_code == 200
    assert admission.patch(collector, manifest, NO_FINALIZERS).status_code == 403
    assert finalizers(admission, manifest) == [FINALIZER]
    applied = admission.server.kubectl("apply", "-f", str(ROOT / "examples/cluster/rbac.yaml"))
    assert applied.returncode == 0, applied.stderr
    admission.settle()
    operator = User("system:serviceaccount:toolcrib-system:toolcrib-operator", writes=False)
    assert admission.patch(operator, manifest, NO_FINALIZERS).status_code == 200
    assert admission.request(None, "GET", path_of(manifest)).status_code == 404
