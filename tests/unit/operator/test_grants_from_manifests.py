"""What bindings mean, by example: manifests through the operator's assessment, and what agents then see.

One plain example of each rule of DESIGN §3 and §4. Random cases against an independent oracle are another matter.
"""

from typing import Any

import pytest

from manifests import binding, cluster_binding, tool
from published import CLUSTER, FAR, bot
from toolcrib.authorizer import Action, decide
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.publish import Publish, Revision
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
LOGIN = "https://login.example"
Manifest = dict[str, Any]


def a_tool(tool_id: str, server: str | None = None, **spec: Any) -> Manifest:
    """A tool of scope `use`; `tool_id` is namespace/name, and the name is what agents see."""
    namespace, name = tool_id.split("/")
    return tool(name.replace("_", "-"), namespace, name=name, server=server, **{"scopes": ["use"], **spec})


def namespace(name: str, **labels: str) -> Manifest:
    own = {"kubernetes.io/metadata.name": name}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": own | labels}}


TOOLS = [
    a_tool("heist/calculator"),
    a_tool("heist/read_file", "files"),
    a_tool("heist/delete_file", "files"),
    a_tool("heist/delete_repo", "github"),
    a_tool("bank/read_ledger", "files"),
    a_tool("bank/calculator"),
]
SPACES = [namespace("heist"), namespace("bank", zone="a", team="x")]
PLANNER = bot("heist", "planner")


def snapshot(*bindings: Manifest, tools: list[Manifest] = TOOLS, **settings: Any) -> Snapshot:
    """What a replica holds once the operator has assessed these manifests."""
    world = World()
    for manifest in (*SPACES, *tools, *bindings):
        world.upsert(manifest["kind"], manifest)
    assessor = Assessor(world, LoopSettings(accounts=False, **settings))
    assessor.judge(assessor.expand(world.take()[0]))
    batch = assessor.batch()
    whole = Publish(to=Revision(epoch=1, seq=1), tools=tuple(batch.tools), bindings=tuple(batch.bindings))
    return Snapshot().apply(whole)


def seen(
    *bindings: Manifest, by: Identity = PLANNER, now: float = NOW, tools: list[Manifest] = TOOLS, **settings: Any
) -> set[str]:  # fmt: skip
    """The tools that an agent sees, as namespace/name; calls are decided alike."""
    held = snapshot(*bindings, tools=tools, **settings)
    visible = {f"{t.namespace}/{t.name}" for t in view_of(by, held, now).tools.values()}
    for t in held.tools.values():
        assert decide(by, t, Action.CALL, held.policy, now).allowed is (f"{t.namespace}/{t.name}" in visible)
    return visible


HEIST = {"heist/calculator", "heist/read_file", "heist/delete_file", "heist/delete_repo"}
EVERYTHING = HEIST | {"bank/read_ledger", "bank/calculator"}


def grant(name: str = "planner", namespace: str = "heist", /, scopes: tuple[str, ...] = ("use",), **spec: Any) -> Manifest:  # fmt: skip
    """A binding for heist/planner; without scopes it only denies."""
    made = binding(
        name,
        scopes,
        namespace,
        subjects=[{"kind": "ServiceAccount", "namespace": "heist", "name": "planner"}],
    )
    made["spec"] |= spec
    if not scopes:
        del made["spec"]["scopes"]
    return made


def test_a_grant_reaches_the_tools_of_its_own_namespace_and_no_others() -> None:
    assert seen(grant()) == HEIST
    assert seen(grant("planner", "bank")) == {"bank/read_ledger", "bank/calculator"}
    assert seen() == set()
    assert seen(grant(), by=bot("heist", "hacker")) == set()
    assert seen(grant(), by=bot("bank", "planner")) == set(), "the same name in another namespace is another"


def test_a_grant_opens_what_carries_one_of_its_scopes() -> None:
    tools = [a_tool("heist/a", scopes=["a:use"]), a_tool("heist/ab", scopes=["a:use", "b:use"]),
             a_tool("heist/both", scopes=["a:use", "b:use"], scopeMatch="All")]  # fmt: skip
    assert seen(grant(scopes=("a:use",)), tools=tools) == {"heist/a", "heist/ab"}
    two = (grant(scopes=("a:use",)), grant("more", scopes=("b:use",)))
    assert seen(*two, tools=tools) == {"heist/a", "heist/ab", "heist/both"}, "All: the bindings together"


@pytest.mark.parametrize(
    ("allow", "left"),
    [
        (["calculator"], {"heist/calculator"}),
        (["CALCULATOR"], {"heist/calculator"}),
        (["files:read_file"], {"heist/read_file"}),
        (["github:read_file"], set()),
        (["files:*"], {"heist/read_file", "heist/delete_file"}),
        (["delete_*"], {"heist/delete_file", "heist/delete_repo"}),
        (["delete_????"], {"heist/delete_file", "heist/delete_repo"}),
        (["*:*"], HEIST - {"heist/calculator"}),  # a pattern with a server never means a tool without one
        (["delete"], set()),  # patterns match whole
    ],
)
def test_allow_names_tools_by_pattern(allow: list[str], left: set[str]) -> None:
    assert seen(grant(tools={"allow": allow})) == left


def test_servers_narrow_a_grant_to_tools_of_these_servers() -> None:
    assert seen(grant(servers=["files"])) == {"heist/read_file", "heist/delete_file"}
    assert seen(grant(servers=["Files", "github"])) == HEIST - {"heist/calculator"}


def test_a_deny_wins_over_every_grant_within_its_reach_and_nowhere_else() -> None:
    everywhere = cluster_binding("planner", ["use"], namespaces=["heist", "bank"])
    denied = grant("deny", "bank", (), tools={"deny": ["calculator", "files:*"]})
    assert seen(everywhere) == EVERYTHING
    assert seen(everywhere, denied) == HEIST


def test_a_deny_is_narrowed_by_no_servers_and_outlives_its_dates() -> None:
    over = {"expiresAt": "2026-01-01T00:00:00Z"}
    denied = grant("deny", "heist", (), tools={"deny": ["delete_*"]}, servers=["elsewhere"], **over)
    assert seen(grant(), denied) == {"heist/calculator", "heist/read_file"}


def test_a_deny_of_somebody_else_is_no_business_of_ours() -> None:
    theirs = binding("hacker", ["use"], tools={"deny": ["*"]})
    assert seen(grant(), theirs) == HEIST


def test_a_grant_counts_from_not_before_until_expires_at_by_the_clock() -> None:
    dated = grant(notBefore="2027-01-15T08:00:00Z", expiresAt="2027-01-15T09:00:00Z")
    assert [bool(seen(dated, now=NOW + s)) for s in (-0.001, 0, 3599.999, 3600)] == [False, True, True, False]


def test_a_cluster_binding_reaches_the_namespaces_it_names() -> None:
    assert seen(cluster_binding("planner", ["use"], namespaces=["bank"])) == {
        "bank/read_ledger",
        "bank/calculator",
    }


def test_in_a_cluster_binding_a_server_is_one_of_a_namespace() -> None:
    both = {"namespaces": ["heist", "bank"]}
    assert seen(cluster_binding("planner", ["use"], servers=["bank/files"], **both)) == {"bank/read_ledger"}
    allow = {"allow": ["*/files:read_*", "bank/github:*"]}
    assert seen(cluster_binding("planner", ["use"], tools=allow, **both)) == {
        "heist/read_file",
        "bank/read_ledger",
    }


@pytest.mark.parametrize(
    ("labels", "trusted", "reached"),
    [
        ({"kubernetes.io/metadata.name": "bank"}, None, {"bank/read_ledger", "bank/calculator"}),
        ({"zone": "a"}, ("zone",), {"bank/read_ledger", "bank/calculator"}),
        ({"zone": "b"}, ("zone",), set()),
        ({"zone": "a"}, None, set()),  # whoever may label a namespace decides nothing
        ({"zone": "a", "team": "x"}, ("zone",), set()),
    ],
)
def test_a_selector_counts_with_labels_that_are_trusted_alone(
    labels: dict[str, str], trusted: tuple[str, ...] | None, reached: set[str]
) -> None:
    settings = {} if trusted is None else {"trusted_namespace_labels": trusted}
    selecting = cluster_binding("planner", ["use"], namespaceSelector={"matchLabels": labels})
    assert seen(selecting, **settings) == reached


def test_the_registrys_own_powers_are_granted_by_no_namespace() -> None:
    assert "registry:admin" not in {
        s for b in snapshot(grant(scopes=("registry:admin",))).bindings.values() for s in b.scopes
    }


def oauth(**fields: Any) -> Identity:
    return Identity(issuer=LOGIN, subject="s", expires_at=FAR, policy=ScopesPolicy.BINDINGS, **fields)


@pytest.mark.parametrize(
    ("subject", "who", "others"),
    [
        ({"kind": "ServiceAccount", "name": "planner"}, PLANNER, oauth(user="planner", client="planner")),
        ({"kind": "Agent", "name": "planner"}, PLANNER, bot("heist", "hacker")),
        (
            {"kind": "Group", "issuer": CLUSTER, "name": "system:serviceaccounts:heist"},
            PLANNER,
            bot("bank", "teller"),
        ),
        ({"kind": "OAuthClient", "issuer": LOGIN, "clientId": "cli"}, oauth(client="cli"), oauth(user="cli")),
        ({"kind": "User", "issuer": LOGIN, "name": "ann"}, oauth(user="ann"), oauth(client="ann")),
        (
            {"kind": "Group", "issuer": LOGIN, "name": "crew"},
            oauth(groups=frozenset({"crew"})),
            bot("heist", "planner", groups=frozenset({"crew"})),
        ),
    ],
)
def test_a_subject_is_matched_by_issuer_and_claim_never_by_a_name_alone(
    subject: Manifest, who: Identity, others: Identity
) -> None:
    given = grant(subjects=[subject])
    assert seen(given, by=who) == HEIST
    assert seen(given, by=others) == set()


def test_a_disabled_tool_is_seen_by_nobody_and_a_deprecated_one_still_is() -> None:
    tools = [a_tool("heist/old", state="Deprecated", replacedBy="new"), a_tool("heist/off", state="Disabled")]
    assert seen(grant(), tools=tools) == {"heist/old"}
