"""Every way to write a spec is checked, whatever it is done by; what leaves a spec alone passes; a deny is not lost by the way."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from admission_server import (
    API,
    APPLY,
    EVERYTHING,
    HOME,
    JSON_PATCH,
    MERGE,
    OPERATOR,
    OTHER,
    ROOT,
    Admission,
    Given,
    Manifest,
    User,
    cluster_grant,
    collection,
    denying,
    grant,
    path_of,
)
from manifests import tool
from realparts.processes import wait_until
from toolcrib.resources import admission as policies
from toolcrib.resources.tool_policies import FEW_WORDS, NO_INPUT_SCHEMA
from toolcrib_operator.admission.comparison import obstacle

pytestmark = [pytest.mark.real, pytest.mark.guarantee]

HELD = ("read:use",)
BOT = (Given(HOME, (("grant", "scopes", HELD), ("gate", "scopes", HELD), ("equip", "subjects", ("bot",)))),)


@pytest.fixture(scope="module")
def people(admission: Admission) -> dict[str, User]:
    """Who tries: `some` may hand read:use to the account bot, and gate tools with it."""
    found = {
        "nobody": admission.user(),
        "some": admission.user(*BOT),
        "a service account": admission.user(*BOT, name=f"system:serviceaccount:{HOME}:deployer"),
        "elsewhere": admission.user(Given(OTHER, EVERYTHING)),
        "all grants": admission.user(Given(HOME, (("grant", "scopes", ()),))),
        "all names of grants": admission.user(
            Given(HOME, (("grant", "scopes", HELD), ("equip", "subjects", ())))
        ),
        "all subjects": admission.user(Given(HOME, (("equip", "subjects", ()),))),
        "admin of the namespace": admission.user(Given(HOME, EVERYTHING)),
        "admin of the cluster": admission.user(Given(None, EVERYTHING)),
        "operator": User(OPERATOR),
    }
    admission.settle()
    return found


def own(name: str) -> Manifest:
    """A binding that `some` may write."""
    return grant(name, HELD, ["bot"])


def wider(manifest: Manifest) -> Manifest:
    """The same with a scope that `some` may not hand out."""
    return manifest | {"spec": manifest["spec"] | {"scopes": [*HELD, "write:use"]}}


Way = Callable[[Admission, User, Manifest, Manifest], Any]

WAYS: dict[str, Way] = {
    "a merge patch": lambda a, who, old, new: a.patch(who, old, {"spec": new["spec"]}),
    "a JSON patch": lambda a, who, old, new: a.patch(
        who, old, [{"op": "replace", "path": "/spec", "value": new["spec"]}], JSON_PATCH
    ),
    "a server-side apply": lambda a, who, old, new: a.patch(who, old, new, APPLY),
    "an update": lambda a, who, old, new: a.request(
        who, "PUT", path_of(old), new | {"metadata": a.request(None, "GET", path_of(old)).json()["metadata"]}
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", ["a binding", "a Tool"])
@pytest.mark.parametrize("who", ["some", "a service account"])
def test_a_change_is_checked_in_full_and_never_by_difference(
    way: str, what: str, who: str, admission: Admission, people: dict[str, User]
) -> None:
    old = own("changed") if what == "a binding" else tool("changed", HOME, scopes=list(HELD))
    user, write = people[who], WAYS[way]
    admission.there(old)

    added = write(admission, user, old, wider(old))
    assert added.status_code == 403, added.text
    assert "'write:use'" in added.text

    admission.there(wider(old))
    other = wider(old) | {"spec": wider(old)["spec"] | {"tools": {"deny": ["x"]}}}
    if what == "a Tool":
        other = wider(old) | {"spec": wider(old)["spec"] | {"description": "Another"}}
    untouched = write(admission, user, old, other)
    assert untouched.status_code == 403, untouched.text
    assert "'write:use'" in untouched.text

    narrowed = write(admission, user, old, old)
    assert narrowed.status_code == 200, narrowed.text


@pytest.mark.parametrize("what", ["a binding", "a Tool"])
@pytest.mark.parametrize("who", ["nobody", "elsewhere", "operator"])
def test_what_leaves_the_spec_alone_passes(
    what: str, who: str, admission: Admission, people: dict[str, User]
) -> None:
    old = own("marked") if what == "a binding" else tool("marked", HOME)
    admission.there(old)
    user = people[who]
    patches: list[tuple[Any, str]] = [
        ({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}, ""),
        ({"metadata": {"finalizers": ["example.com/kept"]}}, ""),
        ({"metadata": {"finalizers": None}}, ""),
        ({"status": {"observedGeneration": 1}}, "/status"),
    ]
    for patch, sub in patches:
        answer = admission.patch(user, old, patch, sub=sub)
        assert answer.status_code == 200, answer.text


def test_a_generated_name_and_each_of_many_are_checked(admission: Admission, people: dict[str, User]) -> None:
    manifest = own("generated")
    manifest["metadata"] = {"generateName": "generated-", "namespace": HOME}
    assert admission.create(people["some"], manifest).status_code == 201
    assert admission.create(people["some"], wider(manifest)).status_code == 403
    # kubectl sends what a list holds one by one
    many = {"apiVersion": "v1", "kind": "List", "items": [own("first"), wider(own("second")), own("third")]}
    done = admission.server.kubectl(
        "apply", "-f", "-", "--as", people["some"].name, "--as-group", "writers", input=json.dumps(many)
    )
    assert done.returncode != 0
    there = admission.request(None, "GET", f"{API}/namespaces/{HOME}/agentscopebindings").json()["items"]
    names = {item["metadata"]["name"] for item in there}
    assert {"first", "third"} <= names
    assert "second" not in names
    assert "you may not grant the scope 'write:use'" in done.stderr


def test_labels_of_a_namespace_or_an_object_change_nothing(
    admission: Admission, people: dict[str, User]
) -> None:
    labels = {"metadata": {"labels": {"toolcrib.dev/admission": "off", "control-plane": "true"}}}
    path = f"/api/v1/namespaces/{HOME}"
    assert admission.request(None, "PATCH", path, labels, MERGE).status_code == 200
    manifest = own("labelled")
    manifest["metadata"] = manifest["metadata"] | labels["metadata"]
    assert admission.create(people["nobody"], manifest).status_code == 403


def test_a_service_account_is_held_to_its_own_rights_by_its_real_token(admission: Admission) -> None:
    account = {"metadata": {"name": "deployer-too", "namespace": HOME}}
    admission.request(None, "POST", f"/api/v1/namespaces/{HOME}/serviceaccounts", account)
    name = f"system:serviceaccount:{HOME}:deployer-too"
    admission.user(*BOT, name=name)
    admission.bind("User", name, "writer", None)
    admission.settle()
    token = admission.server.token_request(HOME, "deployer-too")
    with admission.server.client_for(token) as client:
        path = collection(own("by-token"))
        wait_until(lambda: client.get(path).status_code == 200, 60, 0.05)
        assert client.post(path, json=own("by-token")).status_code == 201
        refused = client.post(path, json=wider(own("by-token-too")))
    assert refused.status_code == 403
    assert "you may not grant the scope 'write:use'" in refused.text


CLUSTER_SUBJECTS: dict[str, dict[str, str]] = {
    "User:https://id.example.com#ada": {"kind": "User", "issuer": "https://id.example.com", "name": "ada"},
    "Group:https://id.example.com#ada": {"kind": "Group", "issuer": "https://id.example.com", "name": "ada"},
    "User:https://id.example.org#ada": {"kind": "User", "issuer": "https://id.example.org", "name": "ada"},
    "OAuthClient:https://id.example.com#ada": {
        "kind": "OAuthClient", "issuer": "https://id.example.com", "clientId": "ada"
    },
}  # fmt: skip


def test_a_right_over_one_issuers_user_is_none_over_another_or_over_a_group(admission: Admission) -> None:
    grants: tuple[Any, ...] = (("grant", "scopes", ()),)
    ada = "User:https://id.example.com#ada"
    user = admission.user(Given(None, (*grants, ("equip", "subjects", (ada,)))))
    local = admission.user(Given(HOME, (*grants, ("equip", "subjects", ()))))
    admission.settle()
    for name, subject in CLUSTER_SUBJECTS.items():
        manifest = grant("people", ["x:use"], [])
        manifest["spec"]["subjects"] = [subject]
        answer = admission.create(user, manifest, dryRun="All")
        assert answer.status_code == (201 if name == ada else 403), answer.text
        refused = admission.create(local, manifest, dryRun="All")
        assert refused.status_code == 403
        assert f"resourceNames: ['{name}'], verbs: [equip]}} in a ClusterRole" in refused.text


def test_an_issuer_that_could_read_like_another_needs_the_right_over_everybody(admission: Admission) -> None:
    odd = {"kind": "User", "issuer": "https://id.example.com#a", "name": "b"}
    alike = "User:https://id.example.com#a#b"
    user = admission.user(Given(None, (("grant", "scopes", ()), ("equip", "subjects", (alike,)))))
    everybody = admission.user(Given(None, (("grant", "scopes", ()), ("equip", "subjects", ()))))
    admission.settle()
    manifest = grant("odd", ["x:use"], [])
    manifest["spec"]["subjects"] = [odd]
    assert admission.create(user, manifest, dryRun="All").status_code == 403
    assert admission.create(everybody, manifest, dryRun="All").status_code == 201


def test_powers_of_the_registry_take_the_right_in_the_whole_cluster(
    admission: Admission, people: dict[str, User]
) -> None:
    manifest = cluster_grant("powers", ["registry:admin"], ["bot"])
    refused = admission.create(people["admin of the namespace"], manifest, dryRun="All")
    assert refused.status_code == 403
    assert "'registry:admin' in the whole cluster" in refused.text
    assert admission.create(people["admin of the cluster"], manifest, dryRun="All").status_code == 201


LOSSES: dict[str, dict[str, Any] | None] = {
    "deleting it": None,
    "removing a scope": {"tools": {"denyScopes": ["vault:use"]}},
    "removing all scopes": {"tools": None, "scopes": ["read:use"]},
    "another scope instead": {"tools": {"denyScopes": ["vault:use", "other:use"]}},
    "a pattern instead of scopes": {"tools": {"denyScopes": None, "deny": ["*"]}},
    "removing a pattern": {"tools": {"deny": ["x"]}},
    "removing all patterns": {"tools": None, "scopes": ["read:use"]},
    "another pattern instead": {"tools": {"deny": ["x", "secret_a"]}},
    "removing a subject": {"subjects": [{"kind": "ServiceAccount", "name": "bot"}]},
}
LIFTERS = {
    "nobody": False,
    "all grants": False,
    "all subjects": False,
    "all names of grants": False,
    "elsewhere": False,
    "operator": False,
    "admin of the namespace": True,
    "admin of the cluster": True,
}


@pytest.mark.parametrize("who", LIFTERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_deny_is_undone_by_those_alone_who_could_grant_everything(
    loss: str, who: str, admission: Admission, people: dict[str, User]
) -> None:
    held = denying("held")
    held["spec"]["tools"]["denyScopes"] = ["vault:use", "safe:use"]
    if "scope" in loss:
        del held["spec"]["tools"]["deny"]
    admission.there(held)
    change = LOSSES[loss]
    method, body = ("DELETE", None) if change is None else ("PATCH", {"spec": change})
    answer = admission.request(people[who], method, path_of(held), body, MERGE)
    assert answer.status_code == (200 if LIFTERS[who] else 403), answer.text
    if change is None and who == "all subjects":
        assert "you may not remove the deny of held in the namespace team-a" in answer.text
        assert "{apiGroups: [toolcrib.dev], resources: [scopes], verbs: [grant]}" in answer.text
    if change is None and who == "all grants":
        assert "you may not remove a deny from the subject 'bot'" in answer.text


def test_denials_may_be_added_by_anyone_who_may_write_and_a_namespaced_deny_needs_no_verb(
    admission: Admission, people: dict[str, User]
) -> None:
    held = denying("growing")
    for tools in (
        {"denyScopes": ["vault:use"]},
        {"denyScopes": ["vault:use", "safe:use"], "deny": ["secret_*", "x", "y"]},
    ):
        admission.there(held)
        assert admission.patch(people["nobody"], held, {"spec": {"tools": tools}}).status_code == 200


def test_a_collection_of_denials_is_no_way_around(admission: Admission, people: dict[str, User]) -> None:
    admission.there(denying("kept"))
    answer = admission.request(
        people["some"], "DELETE", collection(denying("kept")), fieldSelector="metadata.name=kept"
    )
    assert answer.status_code == 403, answer.text
    assert admission.request(None, "GET", path_of(denying("kept"))).status_code == 200


def test_narrowing_the_namespaces_of_a_deny_takes_the_right_in_the_whole_cluster(
    admission: Admission, people: dict[str, User]
) -> None:
    held = cluster_grant("everywhere", ["read:use"], ["bot"], tools={"deny": ["x"]})
    narrower = {"spec": {"namespaces": [HOME]}}
    for who, status in (("admin of the namespace", 403), ("admin of the cluster", 200)):
        admission.there(held)
        assert admission.patch(people[who], held, narrower).status_code == status


ENDING: dict[str, Any] = {"scopes": None, "limits": None, "tools": {"allow": None}}


@pytest.mark.parametrize("who", ["nobody", "some", "admin of the namespace"])
def test_a_grant_over_ones_tools_ends_and_its_deny_stays_without_a_right_over_its_subjects(
    who: str, admission: Admission, people: dict[str, User]
) -> None:
    """Whom a binding that only denies names is given nothing, whoever he is."""
    group = {"kind": "Group", "issuer": "https://id.example.com", "name": "thieves"}
    foreign = {"kind": "ServiceAccount", "namespace": OTHER, "name": "bot"}
    tools = {"allow": ["a", "x"], "deny": ["x"]}
    held = grant("both", ["write:use"], ["bot"], tools=tools, limits={"callsPerMinute": 3})
    held["spec"]["subjects"] += [group, foreign]
    admission.there(held)
    user = people[who]
    refused = admission.request(user, "DELETE", path_of(held))
    assert refused.status_code == 403
    assert f"; {policies.END_THE_GRANT} (see docs/guides/admission.md)" in refused.text
    assert admission.patch(user, held, {"spec": {"limits": None}}).status_code == 403
    assert admission.patch(user, held, {"spec": ENDING}).status_code == 200
    more = {"spec": {"tools": {"deny": ["y", "x"]}}}
    assert admission.patch(user, held, more).status_code == 200
    # there is no grant left to end, and no way back to it
    refused = admission.request(user, "DELETE", path_of(held))
    assert refused.status_code == 403
    assert policies.END_THE_GRANT not in refused.text
    again = admission.patch(user, held, {"spec": {"scopes": list(HELD)}})
    assert again.status_code == 403
    if who == "admin of the namespace":
        assert "resourceNames: ['Group:https://id.example.com#thieves'], verbs: [equip]" in again.text


def test_a_grant_that_denies_nothing_is_deleted_by_anyone_who_may_delete(
    admission: Admission, people: dict[str, User]
) -> None:
    plain = own("no-deny")
    admission.there(plain)
    assert admission.request(people["nobody"], "DELETE", path_of(plain)).status_code == 200


def test_a_namespace_that_goes_takes_its_denials_along(admission: Admission, people: dict[str, User]) -> None:
    name = admission.server.create_namespace("going")
    held = denying("held") | {"metadata": {"name": "held", "namespace": name}}
    admission.there(held)
    assert admission.request(people["nobody"], "DELETE", path_of(held)).status_code == 403
    # the controller that empties it holds no right of ours
    assert admission.request(None, "DELETE", f"/api/v1/namespaces/{name}").status_code == 200

    def deleted() -> bool:
        # the API server judges by its cache of namespaces, which learns of the deletion a moment later
        return admission.request(people["nobody"], "DELETE", path_of(held)).status_code == 200

    wait_until(deleted, 30)


def test_an_operator_with_the_rights_of_rbac_yaml_registers_tools_in_one_namespace_and_nowhere_else(
    admission: Admission,
) -> None:
    applied = admission.server.kubectl("apply", "-f", str(ROOT / "examples/cluster/rbac.yaml"))
    assert applied.returncode == 0, applied.stderr
    admission.settle()
    token = admission.server.token_request("toolcrib-system", "toolcrib-operator")
    with admission.server.client_for(token) as client:
        for namespace, status in (("toolcrib-runtime", 201), (HOME, 403)):
            manifest = tool("registered-too", namespace)
            assert client.post(collection(manifest), json=manifest).status_code == status
        held = denying("finalized")
        admission.there(held)
        patch = {"metadata": {"finalizers": ["toolcrib.dev/revocation"]}}
        headers = {"Content-Type": MERGE}
        assert client.patch(path_of(held), json=patch, headers=headers).status_code == 200
        narrowed = {"spec": {"tools": {"deny": ["x"]}}}
        refused = client.patch(path_of(held), json=narrowed, headers=headers)
        assert refused.status_code == 403
        assert "ValidatingAdmissionPolicy" in refused.text
        assert client.patch(
            path_of(held), json={"metadata": {"finalizers": None}}, headers=headers
        ).is_success


def test_the_operator_writes_no_spec_even_with_every_right(
    admission: Admission, people: dict[str, User]
) -> None:
    operator = people["operator"]
    for manifest in (own("operators"), tool("operators", HOME, scopes=list(HELD))):
        admission.there(manifest)
        changed = admission.patch(operator, manifest, wider(manifest))
        assert changed.status_code == 403
        assert "the operator may not UPDATE a spec" in changed.text
        assert admission.request(operator, "DELETE", path_of(manifest)).status_code == 403
    created = admission.create(operator, own("by-operator"))
    assert created.status_code == 403
    assert "the operator may not CREATE a spec of agentscopebindings" in created.text
    assert admission.create(operator, tool("registered", HOME)).status_code == 201


WARNED: dict[str, tuple[dict[str, list[str]], list[str]]] = {
    "a name": ({"allow": ["read_file"]}, []),
    "a wildcard": ({"allow": ["read_*"]}, ["'read_*' also allows tools that are created later"]),
    "two": ({"allow": ["a?", "b*"]}, ["'a?' and other wildcards also allows"]),
    "a shadowed name": ({"allow": ["x", "y"], "deny": ["X"]}, ["'x' allows nothing: spec.tools.deny"]),
    "all shadowed": ({"allow": ["x", "y"], "deny": ["*"]}, ["'x' and others allow nothing"]),
}


@pytest.mark.parametrize("what", WARNED)
def test_what_may_surprise_is_said_at_apply(what: str, admission: Admission) -> None:
    tools, wanted = WARNED[what]
    answer = admission.create(None, grant("warned", ["x:use"], ["bot"], tools=tools), dryRun="All")
    assert answer.status_code == 201
    said = answer.headers.get_list("Warning")
    assert len(said) == len(wanted), said
    for text, line in zip(wanted, said, strict=True):
        assert text in line


SCHEMA = {"type": "object", "additionalProperties": False}
OF_TOOLS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "neither": ({"inputSchema": SCHEMA, "description": "Reads one file"}, []),
    "no schema": ({"description": "Reads one file"}, [f"spec.inputSchema: {NO_INPUT_SCHEMA}"]),
    "one word": (
        {"inputSchema": SCHEMA, "description": " Reads. "},
        [f"spec.description: 'Reads.' {FEW_WORDS}"],
    ),
    "words in one": ({"inputSchema": SCHEMA, "description": "readWholeFile"}, []),
    "both": (
        {"description": "TODO"},
        [f"spec.inputSchema: {NO_INPUT_SCHEMA}", f"'TODO' {FEW_WORDS}"],
    ),
}


@pytest.mark.parametrize("what", OF_TOOLS)
def test_a_tool_without_a_schema_or_with_a_one_word_description_is_warned_of(
    what: str, admission: Admission
) -> None:
    spec, wanted = OF_TOOLS[what]
    answer = admission.create(None, tool("warned", HOME, **spec), dryRun="All")
    assert answer.status_code == 201
    said = answer.headers.get_list("Warning")
    assert len(said) == len(wanted), said
    for text, line in zip(wanted, said, strict=True):
        assert text in line


def test_an_alteration_is_found_in_what_the_server_makes_of_a_policy(admission: Admission) -> None:
    def read(**altered: Any) -> list[Manifest]:
        found = []
        for kind, plural in policies.PLURALS.items():
            path = f"/apis/{policies.API_VERSION}/{plural}"
            for item in admission.request(None, "GET", path).json()["items"]:
                if item["metadata"]["name"] in altered:
                    patch = {"spec": altered[item["metadata"]["name"]].get(kind, {})}
                    at = f"{path}/{item['metadata']['name']}"
                    item = admission.request(None, "PATCH", at, patch, MERGE, dryRun="All").json()
                found.append(item | {"kind": kind})
        return found

    assert obstacle(read(), None) is None
    alterations: list[tuple[str, dict[str, Any]]] = [
        (policies.POLICY, {"failurePolicy": "Ignore"}),
        (policies.POLICY, {"matchConstraints": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
        (policies.POLICY, {"matchConditions": [{"name": "never", "expression": "false"}]}),
        (policies.BINDING, {"validationActions": ["Audit"]}),
        (policies.BINDING, {"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}}),
    ]
    for name in ("bindings-grant.toolcrib.dev", "tools-gate.toolcrib.dev"):
        for kind, change in alterations:
            said = obstacle(read(**{name: {kind: change}}), None)
            assert said is not None
            assert said.startswith(f"{kind} {name} was altered"), said


def test_rights_can_be_asked_for_beforehand(admission: Admission, people: dict[str, User]) -> None:
    """As docs/guides/admission.md says. (`kubectl auth can-i grant scopes...` looks for a resource that is served.)"""
    some = ("--as", people["some"].name, "--as-group", "writers", "--as-group", "system:authenticated")
    listed = admission.server.kubectl("auth", "can-i", "--list", "-n", HOME, *some).stdout
    assert "scopes.toolcrib.dev" in listed
    assert "[read:use]" in listed
    for manifest, code in ((own("asked"), 0), (wider(own("asked")), 1)):
        tried = admission.server.kubectl(
            "apply", "--dry-run=server", "-f", "-", *some, input=json.dumps(manifest)
        )
        assert tried.returncode == code, tried.stderr
        assert admission.request(None, "GET", path_of(manifest)).status_code == 404
