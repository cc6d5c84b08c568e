"""The roles that the guide offers and those that the chart makes do what is said of them, on a real API server."""

from collections.abc import Callable

import pytest

from admission_server import ROOT, Admission, Manifest, User, cluster_grant, grant
from chart import render
from manifests import tool

pytestmark = pytest.mark.real

EXAMPLES = ROOT / "examples" / "admission"
AUTHOR, LEAD, PLATFORM = (
    User("dev", ("heist-developers",), writes=False),
    User("lead", ("heist-leads",), writes=False),
    User("ops", ("platform-team",), writes=False),
)


@pytest.fixture(scope="module")
def allowed(admission: Admission) -> Callable[[User, Manifest], int]:
    """Tries to create an object as a member of a group, whose rights are those of examples/admission alone."""
    for namespace in ("heist", "planning"):
        admission.server.create_namespace(namespace)
    applied = admission.server.kubectl("apply", "-f", str(EXAMPLES))
    assert applied.returncode == 0, applied.stderr
    admission.settle()

    def attempt(user: User, manifest: Manifest) -> int:
        return admission.create(user, manifest, dryRun="All").status_code

    return attempt


def planned(**spec: object) -> Manifest:
    """A grant of the calculator to the agent bot of the namespace planning."""
    manifest = grant("planned", ["calculator:use"], [], "heist")
    manifest["spec"]["subjects"] = [{"kind": "ServiceAccount", "namespace": "planning", "name": "bot"}]
    manifest["spec"] |= spec
    return manifest


def test_tool_authors_publish_under_their_scopes(allowed: Callable[[User, Manifest], int]) -> None:
    assert allowed(AUTHOR, tool("t", "heist", scopes=["calculator:use", "file_reader:use"])) == 201
    assert allowed(AUTHOR, tool("t", "heist", scopes=["calculator:use", "vault:open"])) == 403
    assert allowed(AUTHOR, tool("t", "planning", scopes=["calculator:use"])) == 403
    assert allowed(AUTHOR, grant("g", ["calculator:use"], ["planner"], "heist")) == 403


def test_grant_managers_hand_out_one_scope_and_to_another_teams_agent_where_that_team_agrees(
    allowed: Callable[[User, Manifest], int],
) -> None:
    assert allowed(LEAD, grant("g", ["calculator:use"], ["planner", "driver"], "heist")) == 201
    assert allowed(LEAD, grant("g", ["vault:open"], ["planner"], "heist")) == 403
    assert allowed(LEAD, planned()) == 201
    other = {"kind": "ServiceAccount", "namespace": "planning", "name": "other"}
    assert allowed(LEAD, planned(subjects=[other])) == 403
    assert allowed(LEAD, tool("t", "heist", scopes=["calculator:use"])) == 403


def test_the_platform_team_grants_cluster_wide_to_named_subjects(
    allowed: Callable[[User, Manifest], int],
) -> None:
    group = {"kind": "Group", "issuer": "https://id.example.com", "name": "auditors"}
    client = {"kind": "OAuthClient", "issuer": "https://id.example.com", "clientId": "assistant"}
    both = cluster_grant("c", ["calculator:use", "file_reader:use"], [], subjects=[group, client])
    assert allowed(PLATFORM, both) == 201
    elsewhere = {"kind": "Group", "issuer": "https://id.example.org", "name": "auditors"}
    assert allowed(PLATFORM, cluster_grant("c", ["calculator:use"], [], subjects=[elsewhere])) == 403
    assert allowed(PLATFORM, cluster_grant("c", ["registry:admin"], [], subjects=[group])) == 403


@pytest.mark.parametrize("editors_gate", [True, False])
def test_the_charts_roles_let_editors_publish_and_admins_grant_within_their_namespace(
    editors_gate: bool, admission: Admission
) -> None:
    release = f"gate-{str(editors_gate).lower()}"
    rendered = render({"rbac": {"editorsGate": True}} if editors_gate else {}, release=release)
    for role in rendered.of("ClusterRole"):
        if role["metadata"]["name"] in {
            f"{release}-toolcrib-{name}" for name in ("edit", "admin", "tool-author")
        }:
            admission.make(None, "ClusterRole", role)
    editor, admin, author = (User(f"{release}-{who}", writes=False) for who in ("editor", "admin", "author"))
    home = admission.server.create_namespace(f"{release}-home")
    admission.bind("User", editor.name, f"{release}-toolcrib-edit", home)
    admission.bind("User", author.name, f"{release}-toolcrib-tool-author", home)
    # what the cluster's own role `admin` aggregates
    admission.bind("User", admin.name, f"{release}-toolcrib-edit", home)
    admission.bind("User", admin.name, f"{release}-toolcrib-admin", home)
    admission.settle()

    def attempt(user: User, manifest: Manifest) -> int:
        return admission.create(user, manifest, dryRun="All").status_code

    assert attempt(editor, tool("t", home)) == (201 if editors_gate else 403)
    assert attempt(author, tool("t", home, scopes=["any:use", "other:use"])) == 201
    assert attempt(author, tool("t", "default")) == 403
    assert attempt(author, grant("g", ["x:use"], ["bot"], home)) == 403
    assert attempt(editor, tool("t", "default")) == 403
    assert attempt(editor, grant("g", ["x:use"], ["bot"], home)) == 403
    assert attempt(admin, tool("t", home)) == 201
    assert attempt(admin, grant("g", ["x:use", "y:use"], ["bot"], home, tools={"deny": ["z"]})) == 201
    foreign = grant("g", ["x:use"], [], home)
    foreign["spec"]["subjects"] = [{"kind": "ServiceAccount", "namespace": "default", "name": "bot"}]
    assert attempt(admin, foreign) == 403
    assert attempt(admin, cluster_grant("c", ["x:use"], ["bot"])) == 403
