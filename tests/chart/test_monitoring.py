"""Each way in which a Prometheus or a Grafana finds what the chart brings."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart import CHART, Object, Rendered, render
from chart_agents import agent_pods
from chart_values import MATRIX
from realparts import prometheus
from realparts.required import require_prometheus

pytestmark = pytest.mark.real

_RULES = sorted(CHART.glob("rules/*.yaml"))
_DASHBOARDS = sorted(CHART.glob("dashboards/*.json"))
_JOBS = {"toolcrib-registry", "toolcrib-operator", "toolcrib-agent"}


def _scrape_config(rendered: Rendered) -> dict[str, Any]:
    files = rendered.one("ConfigMap", "toolcrib-prometheus")["data"]
    config: dict[str, Any] = yaml.safe_load(files["prometheus.yml"])
    return config


def _jobs(monitor: Object) -> set[str]:
    points = monitor["spec"].get("endpoints", []) + monitor["spec"].get("podMetricsEndpoints", [])
    return {
        rule["replacement"]
        for point in points
        for rule in point["relabelings"]
        if rule.get("targetLabel") == "job"
    }


def test_pods_say_where_their_metrics_are() -> None:
    rendered = render(MATRIX["agents"])
    for where, pod in (*rendered.pods(), *agent_pods(rendered)):
        annotations = pod["metadata"].get("annotations", {})
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        expected = {
            "registry": ("8091", "https"),
            "operator": ("8090", "http"),
            "agent": ("8092", "http"),
        }.get(component)
        found = (annotations.get("prometheus.io/port"), annotations.get("prometheus.io/scheme"))
        assert found == (expected or (None, None)), where
        assert (annotations.get("prometheus.io/scrape") == "true") is (expected is not None), where


def test_annotations_can_be_left_out() -> None:
    for where, pod in render(MATRIX["bare"]).pods():
        assert "prometheus.io/scrape" not in pod["metadata"].get("annotations", {}), where


def test_the_service_monitor_verifies_the_registry_that_it_scrapes() -> None:
    rendered = render(MATRIX["prometheus-operator"])
    monitor = rendered.one("ServiceMonitor", "toolcrib-registry")
    point = monitor["spec"]["endpoints"][0]
    assert (point["port"], point["scheme"], point["path"]) == ("metrics", "https", "/metrics")
    assert point["tlsConfig"]["serverName"] == "toolcrib-registry.toolcrib-system.svc"
    assert "insecureSkipVerify" not in point["tlsConfig"]
    authority = point["tlsConfig"]["ca"]["configMap"]
    assert authority["key"] in rendered.one("ConfigMap", authority["name"])["data"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_the_service_monitor_finds_the_admin_service_alone() -> None:
    rendered = render(MATRIX["prometheus-operator"])
    wanted = rendered.one("ServiceMonitor", "toolcrib-registry")["spec"]["selector"]["matchLabels"]
    found = [
        service["metadata"]["name"]
        for service in rendered.of("Service")
        if wanted.items() <= service["metadata"]["labels"].items()
        and any(port["name"] == "metrics" for port in service["spec"]["ports"])
    ]
    assert found == ["toolcrib-registry-admin"]


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("cert-manager", {"secret": {"name": "toolcrib-registry-tls", "key": "ca.crt"}}),
        ("existing-tls", {"configMap": {"name": "corp-ca", "key": "ca.crt"}}),
    ],
)
def test_monitors_take_the_authority_from_where_it_is(name: str, where: dict[str, Any]) -> None:
    rendered = render(MATRIX[name] | {"monitoring": {"serviceMonitor": {"enabled": True}}})
    point = rendered.one("ServiceMonitor", "toolcrib-registry")["spec"]["endpoints"][0]
    assert point["tlsConfig"]["ca"] == where


def test_without_tls_the_registry_is_scraped_in_the_clear() -> None:
    values = {
        "tls": {"mode": "off"},
        "monitoring": {"serviceMonitor": {"enabled": True}, "scrapeConfig": {"enabled": True}},
    }
    rendered = render(values)
    point = rendered.one("ServiceMonitor", "toolcrib-registry")["spec"]["endpoints"][0]
    assert "tlsConfig" not in point
    assert all("scheme" not in job for job in _scrape_config(rendered)["scrape_configs"])


def test_jobs_are_called_alike_however_they_are_scraped() -> None:
    """Rules and dashboards rely on it."""
    rendered = render(MATRIX["prometheus-operator"])
    assert set().union(*(_jobs(item) for item in rendered.of("ServiceMonitor", "PodMonitor"))) == _JOBS
    for name in ("prometheus", "prometheus-asks-kubernetes"):
        jobs = {job["job_name"] for job in _scrape_config(render(MATRIX[name]))["scrape_configs"]}
        assert jobs == _JOBS - ({"toolcrib-agent"} if not MATRIX[name].get("agents") else set())


def test_agents_are_only_monitored_where_there_are_some() -> None:
    rendered = render({"monitoring": {"podMonitor": {"enabled": True}}})
    assert [item["metadata"]["name"] for item in rendered.of("PodMonitor")] == ["toolcrib-operator"]


def test_the_scrape_configuration_needs_no_other_file_than_those_beside_it() -> None:
    rendered = render(MATRIX["prometheus"])
    files = rendered.one("ConfigMap", "toolcrib-prometheus")["data"]
    config = _scrape_config(rendered)
    for job in config["scrape_configs"]:
        if "tls_config" in job:
            assert job["tls_config"]["ca_file"] in files
            assert job["tls_config"]["server_name"] == "toolcrib-registry.toolcrib-system.svc"
    assert files["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")
    assert any(Path(file).match(config["rule_files"][0]) for file in files)
    assert len(files) == 2 + len(_RULES)


def test_promtool_accepts_the_scrape_configuration_with_its_rules(tmp_path: Path) -> None:
    """That by DNS: Debian's build cannot ask Kubernetes."""
    require_prometheus()
    for name, text in render(MATRIX["prometheus"]).one("ConfigMap", "toolcrib-prometheus")["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [prometheus.path_of("promtool"), "check", "config", tmp_path / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(_RULES)} rule files found" in done.stdout


def test_by_dns_every_part_is_found_under_a_headless_service_without_any_rights() -> None:
    rendered = render(
        MATRIX["prometheus"] | {"agents": MATRIX["agents"]["agents"], "clusterDomain": "corp.local"}
    )
    services = {item["metadata"]["name"]: item["spec"] for item in rendered.of("Service")}
    jobs = _scrape_config(rendered)["scrape_configs"]
    assert len(jobs) == 3
    for job in jobs:
        discovery = job["dns_sd_configs"][0]
        name = discovery["names"][0].partition(".")[0]
        agents = job["job_name"] == "toolcrib-agent"
        places = MATRIX["agents"]["agents"]["namespaces"] if agents else ["toolcrib-system"]
        assert discovery["names"] == [f"{name}.{place}.svc.corp.local" for place in places]
        service = services[name]
        assert service["clusterIP"] == "None"
        assert service["publishNotReadyAddresses"] is True, "a pod that is not ready has the more to say"
        (port,) = (p for p in service["ports"] if p["name"] == "metrics")
        assert port["port"] == discovery["port"]
        pods = [
            pod
            for _, pod in (*rendered.pods(), *agent_pods(rendered))
            if service["selector"].items() <= pod["metadata"]["labels"].items()
        ]
        assert pods
        for pod in pods:
            ports = {entry["name"]: entry["containerPort"] for entry in pod["spec"]["containers"][0]["ports"]}
            assert ports[port["targetPort"]] == discovery["port"], "no Service translates it"
    assert not rendered.find("Role", "toolcrib-prometheus")


def test_by_the_api_server_every_part_is_found_by_its_labels_and_port() -> None:
    rendered = render(MATRIX["prometheus-asks-kubernetes"])
    pods = [pod for _, pod in (*rendered.pods(), *agent_pods(rendered))]
    jobs = _scrape_config(rendered)["scrape_configs"]
    assert len(jobs) == 3
    for job in jobs:
        discovery = job["kubernetes_sd_configs"][0]
        place = "team-b" if job["job_name"] == "toolcrib-agent" else "toolcrib-system"
        assert discovery["namespaces"]["names"] == [place]
        wanted = dict(pair.split("=") for pair in discovery["selectors"][0]["label"].split(","))
        port = next(rule["regex"] for rule in job["relabel_configs"] if rule["action"] == "keep")
        found = [pod for pod in pods if wanted.items() <= pod["metadata"]["labels"].items()]
        assert found, job["job_name"]
        for pod in found:
            ports = {str(entry["containerPort"]) for entry in pod["spec"]["containers"][0]["ports"]}
            assert port in ports, job["job_name"]


def test_prometheus_gets_the_right_to_find_pods_and_no_other() -> None:
    rendered = render(MATRIX["prometheus-asks-kubernetes"])
    roles = [item for item in rendered.of("Role") if item["metadata"]["name"] == "toolcrib-prometheus"]
    assert [role["metadata"].get("namespace") for role in roles] == [None, "team-b"]
    for role in roles:
        assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    subjects = rendered.one("RoleBinding", "toolcrib-prometheus")["subjects"]
    assert subjects == [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]


@pytest.mark.parametrize("file", _RULES, ids=lambda file: file.stem)
def test_rules_are_the_files_of_the_chart_with_runbooks_that_have_an_address(file: Path) -> None:
    wanted = yaml.safe_load(
        file.read_text(encoding="utf-8").replace("__RUNBOOK_BASE__", "https://example.com/x")
    )
    rule = render(MATRIX["prometheus-operator"]).one("PrometheusRule", f"toolcrib-{file.stem}")
    assert rule["spec"]["groups"] == wanted["groups"]


def test_rules_without_an_address_of_runbooks_carry_no_broken_links() -> None:
    rendered = render(MATRIX["prometheus"])
    for name in ("toolcrib-rules", "toolcrib-prometheus"):
        files = rendered.one("ConfigMap", name)["data"]
        text = "\n".join(files.values())
        assert "__RUNBOOK_BASE__" not in text
        assert "runbook_url" not in text
    kept = yaml.safe_load(rendered.one("ConfigMap", "toolcrib-rules")["data"]["alerts.yaml"])
    wanted = yaml.safe_load((CHART / "rules" / "alerts.yaml").read_text(encoding="utf-8"))
    for group in wanted["groups"]:
        for rule in group["rules"]:
            rule["annotations"].pop("runbook_url")
    assert kept["groups"] == wanted["groups"]


@pytest.mark.parametrize("file", _DASHBOARDS, ids=lambda file: file.stem)
def test_each_dashboard_is_a_configmap_that_the_sidecar_finds(file: Path) -> None:
    name = f"toolcrib-dashboard-{file.stem.removeprefix('toolcrib-')}"
    item = render(MATRIX["prometheus-operator"]).one("ConfigMap", name)
    assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert item["metadata"]["annotations"]["grafana_folder"] == "Toolcrib"
    assert item["metadata"]["namespace"] == "grafana"
    assert json.loads(item["data"][file.name]) == json.loads(file.read_text(encoding="utf-8"))
    assert len(item["data"][file.name]) < 900_000, "a ConfigMap holds 1 MiB"
