"""What the chart renders is what Kubernetes takes, in every version that the chart says it supports."""

from typing import Any

import pytest
import yaml

from chart import CHART, NAMESPACE, ROOT, Object, Rendered, lint, named, refused, render
from chart_snapshot import snapshot
from chart_values import MATRIX
from kubernetes_schemas import VERSIONS, problems
from toolcrib.resources import KINDS, admission, confirmations

pytestmark = pytest.mark.real


@pytest.mark.parametrize("name", MATRIX)
def test_every_manifest_is_valid_in_every_supported_version(name: str) -> None:
    found = [
        text
        for version in VERSIONS
        for item in render(MATRIX[name]).objects
        for text in problems(item, version)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("release", ["true", "on", "null"])
def test_words_that_yaml_takes_for_something_else_stay_words(release: str) -> None:
    """The release's own name and namespace, which are no values of the chart."""
    values = MATRIX["numbers"] | {"nameOverride": "", "fullnameOverride": ""}
    rendered = render(values, release=release, namespace="123")
    found = [text for item in rendered.objects for text in problems(item, VERSIONS[-1])]
    assert not found, "\n".join(found)
    scraped = rendered.one("ConfigMap", f"{release}-toolcrib-prometheus")["data"]["prometheus.yml"]
    jobs = yaml.safe_load(scraped)["scrape_configs"]
    assert {name for job in jobs for name in job["kubernetes_sd_configs"][0]["namespaces"]["names"]} == {
        "123"
    }


@pytest.mark.parametrize("version", ["1.31.0", "1.34.2-gke.100", "1.37.0+k3s1"])
def test_versions_as_clusters_write_them_are_taken(version: str) -> None:
    assert render(kube_version=version).objects


def test_an_older_kubernetes_is_refused() -> None:
    assert "1.31" in refused({}, kube_version="1.30.9")


@pytest.mark.parametrize("name", ["default", "embedded", "extras", "agents", "bare"])
def test_helm_lint_has_nothing_to_say(name: str) -> None:
    done = lint(MATRIX[name])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[ERROR]" not in done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("name", MATRIX)
def test_no_object_is_rendered_twice(name: str) -> None:
    rendered = render(MATRIX[name])
    keys = [
        (named(item), item["metadata"].get("namespace", ""))
        for item in rendered.objects
        # an Agent that an uninstall deletes is written down a second time
        if item["kind"] != "Agent" or "run" in item["spec"]
    ]
    assert len(keys) == len(set(keys))


def test_two_renderings_differ_in_nothing_but_what_is_made_at_random() -> None:
    """Else every upgrade would restart pods for nothing."""
    again = render(MATRIX["default"], upgrade=True)
    assert snapshot(render(MATRIX["default"])) == snapshot(again)


def test_the_definitions_are_those_of_the_repository() -> None:
    shipped = {file.name: file.read_bytes() for file in (CHART / "files" / "crds").glob("*.yaml")}
    assert shipped == {file.name: file.read_bytes() for file in (ROOT / "crds").glob("*.yaml")}
    rendered = {item["metadata"]["name"]: item["spec"] for item in _definitions(render())}
    assert rendered == {name: item["spec"] for name, item in _repository().items()}


def test_the_policies_are_those_of_the_repository_with_the_operators_own_account() -> None:
    rendered = render({"operator": {"serviceAccount": {"name": "runs-it"}}}, release="crib")
    account = f"system:serviceaccount:{NAMESPACE}:runs-it"
    wanted = {(m["kind"], m["metadata"]["name"]): m["spec"] for m in admission.manifests(account)}
    assert {(m["kind"], m["metadata"]["name"]): m["spec"] for m in _policies(rendered)} == wanted
    shipped = (ROOT / "crds" / "admission-policies.yaml").read_text(encoding="utf-8")
    assert list(yaml.safe_load_all(shipped)) == admission.manifests()


def test_the_policies_are_kept_as_the_definitions_are_and_can_be_left_out() -> None:
    policy = "helm.sh/resource-policy"
    assert all(m["metadata"]["annotations"][policy] == "keep" for m in _policies(render()))
    assert all(m["metadata"]["labels"][admission.LABEL] == admission.PART_OF for m in _policies(render()))
    loose = _policies(render({"crds": {"keep": False}}))
    assert loose
    assert all(policy not in m["metadata"].get("annotations", {}) for m in loose)
    assert not _policies(render({"admission": {"install": False}, "operator": {"admission": "external"}}))


def test_the_operator_looks_for_the_policies_unless_something_else_checks() -> None:
    def flags(**values: Any) -> list[str]:
        pod = render(values).one("Deployment", "toolcrib-operator")["spec"]["template"]["spec"]
        found: list[str] = pod["containers"][0]["args"]
        return found

    account = f"--service-account={NAMESPACE}/toolcrib-operator"
    assert {"--admission=policy", account} <= set(flags())
    assert "--admission=external" in flags(operator={"admission": "external"})


def test_definitions_are_kept_at_uninstall_unless_told_otherwise() -> None:
    policy = "helm.sh/resource-policy"
    assert all(item["metadata"]["annotations"][policy] == "keep" for item in _definitions(render()))
    loose = render({"crds": {"keep": False}})
    assert all(policy not in item["metadata"].get("annotations", {}) for item in _definitions(loose))


def test_annotations_of_the_repository_stay_on_the_definitions() -> None:
    shared = {"commonAnnotations": {"example.com/a": "b"}}
    for item in _definitions(render(shared)):
        expected = _repository()[item["metadata"]["name"]]["metadata"].get("annotations", {})
        annotations = item["metadata"]["annotations"]
        assert annotations.items() >= expected.items()
        assert annotations["example.com/a"] == "b"


def test_definitions_can_be_left_out() -> None:
    assert not _definitions(render({"crds": {"install": False}}))


def _definitions(rendered: Rendered) -> list[Object]:
    return rendered.of("CustomResourceDefinition")


def _policies(rendered: Rendered) -> list[Object]:
    return [*rendered.of(admission.POLICY), *rendered.of(admission.BINDING)]


def _repository() -> dict[str, Object]:
    plurals = [*(kind.plural for kind in KINDS.values()), confirmations.PLURAL]
    files = ((ROOT / "crds" / f"{plural}.yaml") for plural in plurals)
    read = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    return {item["metadata"]["name"]: item for item in read}
