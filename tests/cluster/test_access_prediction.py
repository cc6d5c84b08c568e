"""`toolcrib access` against a real API server: what it foretells is what the real registry lists after `kubectl apply`."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from access_worlds import ACCOUNTS, CLUSTER_ISSUER, NAMESPACES, account, random_change, random_world
from cluster import Cluster
from realparts.processes import wait_until
from realparts.required import require_real
from toolcrib_cli import main as cli
from toolcrib_cli.asking import Question, cluster_source
from toolcrib_cli.cluster import read_issuer

pytestmark = [pytest.mark.apiserver, pytest.mark.long]

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
    with Cluster(store="embedded", embedder="none") as made:
        spaces = [m for m in random_world(0).manifests if m["kind"] == "Namespace"]
        accounts = [account(*s.split("/")) for s in [*SUBJECTS, "shop/reviewer"]]
        apply(made, [*spaces, *accounts, ADMIN])
        yield made


def apply(cluster: Cluster, manifests: list[dict[str, Any]]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(listed))


def asked(capsys: pytest.CaptureFixture[str], cluster: Cluster, *arguments: str, token: str = "") -> Any:
    kubeconfig = cluster.api.kubeconfig_for(token) if token else cluster.api.admin_kubeconfig
    source = () if "--registry" in arguments else ("--kubeconfig", str(kubeconfig))
    with pytest.raises(SystemExit) as ended:
        cli.main(["access", *arguments, *source, "-o", "json"])
    shown = capsys.readouterr()
    return json.loads(shown.out) if shown.out else (ended.value.code, shown.err)


def told(cluster: Cluster, binding: Path | None = None, deleted: Sequence[str] = ()) -> Seen:
    """By subject, id and name of each tool; the cluster is read once."""
    question = Question(bindings=(binding,) if binding else (), delete=tuple(deleted))
    source = cluster_source(question, str(cluster.api.admin_kubeconfig), None)
    found = {s: source.what_can(s, hidden=False).tools for s in SUBJECTS}
    return {s: [(t.tool_id, str(t.name)) for t in tools] for s, tools in found.items()}


def listed(cluster: Cluster, tokens: dict[str, str]) -> Seen:
    """What the real registry lists for real tokens."""
    found = {}
    with httpx.Client(base_url=cluster.url, trust_env=False) as client:
        for subject, token in tokens.items():
            headers = {"Authorization": f"Bearer {token}"}
            answer = client.get("/v1/tools", params={"limit": 500}, headers=headers).json()
            found[subject] = [(t["tool_id"], t["name"]) for t in answer["tools"]]
    return found


def foretold_is_listed(cluster: Cluster, folder: Path, seeds: Sequence[int]) -> int:
    """Random worlds and changes: asked before, applied, listed. How many lists a change made others."""
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
        file = folder / f"change-{seed}.yaml"
        file.write_text(yaml.safe_dump_all(change))

        before, after = told(cluster), told(cluster, file if change else None, deleted)
        comes_true(cluster, tokens, before, f"world {seed} as it is")
        if change:
            apply(cluster, change)
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
        wait_until(same, timeout=20, interval=0.1)
    except TimeoutError:
        assert found == wanted, where


def test_a_prediction_is_the_real_list_after_the_apply(cluster: Cluster, tmp_path: Path) -> None:
    assert foretold_is_listed(cluster, tmp_path, (26,)) > 4


@pytest.mark.long
def test_predictions_of_more_random_worlds_are_the_real_lists_after_the_apply(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert foretold_is_listed(cluster, tmp_path, (1, 9, 13, 33, 48, 52)) > 15


def test_the_registry_tells_its_reviewers_the_same_as_the_cluster(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(cluster, random_world(1, accounts=False).of("Tool", "AgentScopeBinding"))
    monkeypatch.setenv("TOOLCRIB_TOKEN", cluster.token("shop", "reviewer"))
    here = {s: asked(capsys, cluster, "what-can", s)["tools"] for s in SUBJECTS[:2]}

    def there() -> Any:
        found = (asked(capsys, cluster, "what-can", s, "--registry", cluster.url) for s in here)
        return dict(zip(here, (f["tools"] for f in found), strict=True))

    wait_until(lambda: there() == here, timeout=20)  # objects, uids, generations and rules too
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
        if "there is no tool" in said:
            break
        named.append(said.partition("you need the right to list ")[2].partition(" in all namespaces")[0])
        role = f"lists-{named[-1].partition('.')[0]}"
        cluster.kubectl("create", "clusterrole", role, "--verb=list", f"--resource={named[-1]}")
        cluster.kubectl(
            "create", "clusterrolebinding", role, f"--clusterrole={role}", "--serviceaccount=shop:bot"
        )
    code, said = asked(capsys, cluster, "who-can", "x", token="nobody")

    ours = ("tools", "agentscopebindings", "clusteragentscopebindings")
    assert set(named) == {*(f"{plural}.toolcrib.dev" for plural in ours), "namespaces", "serviceaccounts"}
    assert (code, "does not accept your credentials" in said) == (4, True)
