"""`toolcrib access` against a real API server: what it foretells is what the real registry lists after `kubectl apply`."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from access_worlds import (
    ACCOUNTS,
    CLUSTER_ISSUER,
    NAMESPACES,
    account,
    random_change,
    random_patches,
    random_world,
    ref_of,
)
from cluster import UNPROVEN, Cluster
from realparts.processes import wait_until
from realparts.required import require_real
from toolcrib_cli import main as cli
from toolcrib_cli.cluster import read_issuer
from toolcrib_cli.prediction.sources import AccessQuestion, cluster_source

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.guarantee]

SUBJECTS = [f"{ns}/{name}" for ns in NAMESPACES for name in ACCOUNTS]
ADMIN = {
    "apiVersion": "toolcrib.dev/v1alpha1",
    "kind": "ClusterAgentScopeBinding",
    "metadata": {"name": "reviewers"},
    "spec": {
        "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "reviewer"}],
        "namespaces": ["toolcrib-system"],
        "scopes": ["registry:admin"],
    },
}
Seen = dict[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with Cluster(store="embedded", embedder="none", operator_flags=UNPROVEN) as made:
        spaces = [m for m in random_world(0).manifests if m["kind"] == "Namespace"]
        accounts = [account(*s.split("/")) for s in [*SUBJECTS, "shop/reviewer"]]
        apply(made, [*spaces, *accounts, ADMIN])
        yield made


def apply(cluster: Cluster, manifests: list[dict[str, Any]], *, refused: bool = False) -> None:
    """`refused`: some may be, by the API server; the others are applied."""
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(listed), check=not refused)


def patch(cluster: Cluster, patches: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """As somebody would by hand; what the API server refuses is not done."""
    for ref, change in patches:
        kind, *place, name = ref.split("/")
        where = ("-n", *place) if place else ()
        cluster.kubectl("patch", kind, name, *where, "--type=merge", "-p", json.dumps(change), check=False)


def among(manifest: dict[str, Any], others: Sequence[dict[str, Any]]) -> bool:
    return ref_of(manifest) in {ref_of(m) for m in others}


def asked(capsys: pytest.CaptureFixture[str], cluster: Cluster, *arguments: str, token: str = "") -> Any:
    kubeconfig = cluster.api.kubeconfig_for(token) if token else cluster.api.admin_kubeconfig
    source = () if "--registry" in arguments else ("--kubeconfig", str(kubeconfig))
    with pytest.raises(SystemExit) as ended:
        cli.main(["access", *arguments, *source, "-o", "json"])
    shown = capsys.readouterr()
    return json.loads(shown.out) if shown.out else (ended.value.code, shown.err)


def told(cluster: Cluster, binding: Path | None = None, deleted: Sequence[str] = ()) -> Seen:
    """By subject, id and name of each tool; the cluster is read once."""
    question = AccessQuestion(bindings=(binding,) if binding else (), delete=tuple(deleted))
    source = cluster_source(question, str(cluster.api.admin_kubeconfig), None)
    found = {s: source.what_can(s, hidden=False).tools for s in SUBJECTS}
    return {s: [(t.tool_id, str(t.name)) for t in tools] for s, tools in found.items()}


def listed(cluster: Cluster, tokens: dict[str, str]) -> Seen:
    """What the real registry lists for real tokens."""
    found = {}
    with httpx.Client(base_url=cluster.url, trust_env=False, verify=False, timeout=60) as client:
        for subject, token in tokens.items():
            headers = {"Authorization": f"Bearer {token}"}
            answer = client.get("/v1/tools", params={"limit": 500}, headers=headers).json()
            found[subject] = [(t["tool_id"], t["name"]) for t in answer["tools"]]
    return found


def foretold_is_listed(cluster: Cluster, folder: Path, seeds: Sequence[int], *, patched: bool = False) -> int:
    """Random worlds and changes: asked before, applied, listed. How many lists a change made others.

    Where `patched`, live objects are changed by `kubectl patch` first, and all manifests are applied anew.
    """
    tokens = {s: cluster.token(*s.split("/")) for s in SUBJECTS}
    changed = 0
    for seed in seeds:
        cluster.kubectl("delete", "tools,agentscopebindings", "--all", "-A")
        cluster.kubectl("delete", "clusteragentscopebindings", "-l", "case=random")
        world = random_world(seed, accounts=False)
        change, deleted = random_change(seed, world)
        for manifest in (*world.manifests, *change):
            if manifest["kind"] == "ClusterAgentScopeBinding":
                manifest["metadata"]["labels"] = {"case": "random"}
        apply(cluster, world.manifests)
        if patched:
            patch(cluster, random_patches(seed, world))
            change += [m for m in world.manifests if m["kind"] != "Namespace" and not among(m, change)]
            deleted = [ref for ref in deleted if ref not in {ref_of(m) for m in change}]
        file = folder / f"change-{seed}.yaml"
        file.write_text(yaml.safe_dump_all(change))

        before, after = told(cluster), told(cluster, file if change else None, deleted)
        comes_true(cluster, tokens, before, f"world {seed} as it is")
        if change:
            apply(cluster, change, refused=patched)
        for ref in deleted:
            kind, *place, name = ref.split("/")
            cluster.kubectl("delete", kind, name, *(("-n", *place) if place else ()))
        comes_true(cluster, tokens, after, f"world {seed} after its change")
        changed += sum(before[s] != after[s] for s in SUBJECTS)
    return changed


def comes_true(cluster: Cluster, tokens: dict[str, str], wanted: Seen, where: str) -> None:
    found: Seen = {}

    def same() -> bool:
        found.clear()
        found.update(listed(cluster, tokens))
        return found == wanted

    try:
        wait_until(same, timeout=60, interval=0.1)
    except TimeoutError:
        assert found == wanted, where


def test_a_prediction_is_the_real_list_after_the_apply(cluster: Cluster, tmp_path: Path) -> None:
    assert foretold_is_listed(cluster, tmp_path, (26,)) > 4


@pytest.mark.long
def test_predictions_of_more_random_worlds_are_the_real_lists_after_the_apply(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert foretold_is_listed(cluster, tmp_path, (1, 9, 13, 33, 48, 52)) > 15


def test_predictions_hold_where_live_objects_were_patched_since_the_last_apply(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert foretold_is_listed(cluster, tmp_path, (3, 9, 48), patched=True) > 5


def test_a_grant_that_was_patched_into_a_denial_is_foretold_to_stay_and_stays(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster.kubectl("delete", "tools,agentscopebindings", "--all", "-A")
    cluster.kubectl("delete", "clusteragentscopebindings", "-l", "case=random")
    head = {"apiVersion": "toolcrib.dev/v1alpha1"}
    tool = {
        **head, "kind": "Tool", "metadata": {"namespace": "shop", "name": "t1"},
        "spec": {"description": "One.", "scopes": ["b:use"], "backend": {"none": {}}},
    }  # fmt: skip
    denial = {
        **head, "kind": "AgentScopeBinding", "metadata": {"namespace": "shop", "name": "m2"},
        "spec": {"subjects": [{"kind": "Agent", "name": "bot"}], "tools": {"deny": ["other"]}},
    }  # fmt: skip
    apply(cluster, [tool, denial])
    patch(cluster, [("AgentScopeBinding/shop/m2", {"spec": {"scopes": ["b:use"]}})])
    file = tmp_path / "m2.yaml"
    file.write_text(yaml.safe_dump(denial))
    tokens = {s: cluster.token(*s.split("/")) for s in SUBJECTS}
    seen: Seen = {s: [("shop/t1", "t1")] if s == "shop/bot" else [] for s in SUBJECTS}
    comes_true(cluster, tokens, seen, "patched")

    told = asked(capsys, cluster, "diff", "-f", str(file))
    again = cluster.kubectl("apply", "-f", str(file))

    assert told["subjects"] == []
    assert "AgentScopeBinding shop/m2 keeps spec.scopes" in told["assumptions"][-1]
    assert "unchanged" in again
    comes_true(cluster, tokens, seen, "applied anew")


def test_the_registry_tells_its_reviewers_the_same_as_the_cluster(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(cluster, random_world(1, accounts=False).of("Tool", "AgentScopeBinding"))
    monkeypatch.setenv("TOOLCRIB_TOKEN", cluster.token("shop", "reviewer"))
    here = {s: asked(capsys, cluster, "what-can", s)["tools"] for s in SUBJECTS[:2]}

    def there() -> Any:
        found = (asked(capsys, cluster, "what-can", s, "--registry", cluster.url) for s in here)
        return dict(zip(here, (f["tools"] for f in found), strict=True))

    wait_until(lambda: there() == here, timeout=60)  # objects, uids, generations and rules too
    assert any(here.values())
    assert read_issuer(kubeconfig=str(cluster.api.admin_kubeconfig)) == CLUSTER_ISSUER
    monkeypatch.setenv("TOOLCRIB_TOKEN", cluster.token("shop", "bot"))
    code, said = asked(capsys, cluster, "who-can", "tool-0", "--registry", cluster.url)
    assert (code, "registry:admin" in said) == (4, True)


def test_a_missing_right_is_named(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    token, named = cluster.api.token_request("shop", "bot"), []
    while True:
        code, said = asked(capsys, cluster, "who-can", "no-such-tool", token=token)
        assert code == 4
        if "no tool 'no-such-tool' exists" in said:
            break
        named.append(said.partition("you need the right to list ")[2].partition(" in all namespaces")[0])
        role = f"lists-{named[-1].partition('.')[0]}"
        cluster.kubectl("create", "clusterrole", role, "--verb=list", f"--resource={named[-1]}")
        cluster.kubectl(
            "create", "clusterrolebinding", role, f"--clusterrole={role}", "--serviceaccount=shop:bot"
        )
        may = ("auth", "can-i", "list", named[-1], "-A", "--as", "system:serviceaccount:shop:bot")
        wait_until(lambda may=may: cluster.kubectl(*may, check=False).startswith("yes"))  # type: ignore[misc]
    code, said = asked(capsys, cluster, "who-can", "x", token="nobody")

    ours = (
        "tools",
        "toolservers",
        "agentscopebindings",
        "clusteragentscopebindings",
        "agents",
        "accessrequests",
        "toolcanaries",
    )
    assert set(named) == {*(f"{plural}.toolcrib.dev" for plural in ours), "namespaces", "serviceaccounts"}
    assert (code, "does not accept your credentials" in said) == (4, True)
