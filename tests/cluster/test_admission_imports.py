"""What the operator may write of Tools on a real API server: those that a ToolServer controls, before and after; no others."""

import pytest

from admission_server import (
    APPLY,
    HOME,
    MERGE,
    OPERATOR,
    ROOT,
    Admission,
    Given,
    Manifest,
    User,
    collection,
    path_of,
)
from manifests import manifest, tool
from toolcrib.resources import API_VERSION

pytestmark = [pytest.mark.real, pytest.mark.guarantee]

IMPORT = (Given(None, (("import", "scopes", ()),)),)
BARE = "system:serviceaccount:bare:toolcrib-operator"
"""An account that is called like the operator, and holds the right to import and no other."""


@pytest.fixture(scope="module")
def operator(admission: Admission) -> User:
    found = admission.user(*IMPORT, name=BARE)
    admission.settle()
    return found


def server(name: str = "files") -> Manifest:
    spec = {"mcp": {"service": {"name": "files-mcp", "port": 8080}}, "defaults": {"scopes": ["files:use"]}}
    return manifest("ToolServer", name, HOME, **spec)


def owner(of: Manifest, **other: object) -> dict[str, object]:
    metadata = of["metadata"]
    return {"apiVersion": API_VERSION, "kind": "ToolServer", "name": metadata["name"], "uid": metadata["uid"],
            "controller": True, **other}  # fmt: skip


def owned(name: str, *owners: dict[str, object]) -> Manifest:
    made = tool(name, HOME, scopes=["files:use"])
    made["metadata"]["ownerReferences"] = list(owners)
    return made


CHANGE = {"spec": {"description": "Changed by its editor"}}


def test_it_writes_changes_and_deletes_a_tool_that_a_toolserver_controls(
    admission: Admission, operator: User
) -> None:
    found = owned("imported", owner(admission.there(server())))
    for body in (found, found | {"spec": found["spec"] | {"scopes": ["other:use"]}}):
        written = admission.patch(operator, found, body, APPLY)
        assert written.is_success, written.text
    assert admission.patch(operator, found, CHANGE, MERGE).is_success
    assert admission.request(operator, "DELETE", path_of(found)).is_success


@pytest.mark.parametrize(
    "reference",
    [
        {"controller": False},
        {"kind": "Deployment"},
        {"apiVersion": "example.com/v1"},
        {"apiVersion": "toolcrib.dev.example.com/v1"},
    ],
)
def test_another_owner_is_no_toolserver(
    admission: Admission, operator: User, reference: dict[str, object]
) -> None:
    found = owned("foreign", owner(admission.there(server()), **reference))
    refused = admission.create(operator, found)
    assert refused.status_code == 403
    assert "'tools-gate.toolcrib.dev'" in refused.text
    admission.there(found)
    every = User(OPERATOR)  # which holds gate on all scopes, too
    for answer in (
        admission.patch(every, found, CHANGE),
        admission.request(every, "DELETE", path_of(found)),
    ):
        assert answer.status_code == 403
        assert "'operator.toolcrib.dev'" in answer.text


def test_it_adopts_no_tool_and_hands_none_on(admission: Admission, operator: User) -> None:
    """With two writes a hand-written Tool would be anybody's: neither may be made."""
    one, two = admission.there(server("one")), admission.there(server("two"))
    hand = tool("by-hand", HOME, scopes=["files:use"])
    admission.there(hand)
    adopting = {"metadata": {"ownerReferences": [owner(one)]}}
    for patch in (adopting, adopting | CHANGE, CHANGE):
        assert admission.patch(operator, hand, patch).status_code == 403
    taken = admission.patch(operator, hand, owned("by-hand", owner(one)), APPLY)
    assert taken.status_code == 403
    found = owned("ours", owner(one))
    admission.there(found)
    for owners in ([owner(two)], []):
        assert admission.patch(operator, found, {"metadata": {"ownerReferences": owners}}).status_code == 403


def test_a_scope_on_a_tool_of_a_toolserver_needs_gate_too(admission: Admission) -> None:
    """An owner reference is for anybody to write: alone it opens nothing."""
    found = owned("mine", owner(admission.there(server())))
    writer = admission.user()
    admission.settle()
    refused = admission.create(writer, found)
    assert refused.status_code == 403
    assert "you may not put the scope 'files:use' on a Tool" in refused.text
    admission.there(found)
    assert admission.patch(writer, found, CHANGE).status_code == 403


def test_an_import_gives_up_an_approval_with_its_toolserver_and_never_gives_one(
    admission: Admission, operator: User
) -> None:
    found = owned("approved", owner(admission.there(server())))
    admission.gone(found)
    digest = {"approvedDigest": "sha256:" + "0" * 64}
    for approval in ("Manual", "Automatic", "Manual"):
        body = found | {"spec": found["spec"] | {"approval": approval}}
        written = admission.patch(operator, found, body, APPLY)
        assert written.is_success, written.text
    refused = admission.patch(operator, found, {"spec": digest})
    assert refused.status_code == 403
    assert "you may not approve the Tool" in refused.text
    assert admission.patch(None, found, {"spec": digest}).is_success
    both = {"spec": {"approval": "Automatic", "approvedDigest": "sha256:" + "1" * 64}}
    assert admission.patch(operator, found, both).status_code == 403
    admission.gone(found)
    assert admission.create(operator, found | {"spec": found["spec"] | digest}).status_code == 403


def test_the_right_to_import_opens_nothing_but_tools_of_toolservers(
    admission: Admission, operator: User
) -> None:
    importer = admission.user(*IMPORT)
    admission.settle()
    for who in (operator, importer):
        assert admission.create(who, tool("plain", HOME)).status_code == 403
        assert admission.create(who, server("theirs")).status_code == 403
    made = admission.there(server("theirs"))
    assert admission.patch(operator, made, {"spec": {"state": "Disabled"}}).status_code == 403
    assert admission.request(operator, "DELETE", path_of(made)).status_code == 403


def test_even_with_every_right_the_operator_deletes_and_changes_no_tool_of_others(
    admission: Admission,
) -> None:
    hand = tool("kept", HOME, scopes=["files:use"])
    admission.there(hand)
    assert admission.patch(User(OPERATOR), hand, CHANGE).status_code == 403
    assert admission.request(User(OPERATOR), "DELETE", path_of(hand)).status_code == 403


def test_the_rights_of_rbac_yaml_are_enough_to_import_and_for_nothing_else(admission: Admission) -> None:
    applied = admission.server.kubectl("apply", "-f", str(ROOT / "examples/cluster/rbac.yaml"))
    assert applied.returncode == 0, applied.stderr
    admission.settle()
    token = admission.server.token_request("toolcrib-system", "toolcrib-operator")
    found, hand = owned("by-role", owner(admission.there(server()))), tool("by-others", HOME)
    admission.gone(found)
    admission.there(hand)
    query = {"fieldManager": "toolcrib-import", "force": "true"}
    with admission.server.client_for(token) as client:
        made = client.patch(path_of(found), json=found, params=query, headers={"Content-Type": APPLY})
        assert made.status_code == 201, made.text
        assert client.delete(path_of(found)).status_code == 200
        assert client.post(collection(hand), json=tool("further", HOME)).status_code == 403
        assert client.patch(path_of(hand), json=CHANGE, headers={"Content-Type": MERGE}).status_code == 403
        assert client.delete(path_of(hand)).status_code == 403
