"""The rules in a real Prometheus that scrapes a real registry and a real operator under a small load."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from cluster import EXAMPLES, Cluster
from realparts.prometheus import Prometheus
from realparts.required import require_prometheus, require_real

pytestmark = [pytest.mark.real, pytest.mark.long]

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "helm/toolcrib/rules").glob("*.yaml"))
LIST = ROOT / "tests/contract/metrics.txt"
TARGET = {"__name__", "job", "instance", "le"}


@pytest.fixture(scope="module")
def loaded() -> Iterator[Prometheus]:
    """A Prometheus whose rules have been evaluated over changes, calls, refusals and searches."""
    require_prometheus()
    require_real("kube-apiserver", "etcd", "kubectl")
    with Cluster(store="embedded", embedder="none") as cluster:
        operator = urlsplit(cluster.operators[0].url).netloc  # type: ignore[attr-defined]
        registry = urlsplit(cluster.replicas[0].metrics_url).netloc
        targets = {"toolcrib-registry": [registry], "toolcrib-operator": [operator]}
        with Prometheus(targets=targets, rules=RULES, interval=0.3) as prometheus:
            prometheus.wait_up()
            cluster.kubectl("apply", "-f", str(EXAMPLES / "heist"))
            cluster.wait_ready("tools", "heist")
            token = cluster.token("heist", "safecracker")

            def load() -> None:
                for tool in ("calculator", "database_query"):
                    cluster.call(token, tool, {"expression": "6*7"})
                cluster.search(token, "sum")
                cluster.discover(token)

            deadline = time.monotonic() + 90
            for name in recorded():
                load()
                while not prometheus.query(name) and time.monotonic() < deadline:
                    load()
            yield prometheus


def recorded() -> list[str]:
    return [name for path in RULES for name in re.findall(r"record: (\S+)", path.read_text())]


def test_every_target_is_up_and_every_rule_evaluates(loaded: Prometheus) -> None:
    loaded.wait_rules()

    assert {t["labels"]["job"] for t in loaded.targets()} == {"toolcrib-registry", "toolcrib-operator"}
    assert {r["health"] for r in loaded.rules()} == {"ok"}
    assert len(loaded.rules()) == sum(path.read_text().count("expr: ") for path in RULES)


def test_every_recording_rule_has_a_value(loaded: Prometheus) -> None:
    assert [name for name in recorded() if not loaded.query(name)] == []
    share = loaded.value("toolcrib:propagation_slo:ratio_rate5m")
    assert share is not None
    assert 0 <= share <= 1
    # a call that is refused is the caller's, one that succeeds nobody's failure
    errors = loaded.query('toolcrib:call_errors:ratio_rate5m{tool="heist/calculator"}')
    assert [float(e["value"][1]) for e in errors] == [0]
    reasons = {e["metric"]["reason"] for e in loaded.query("toolcrib:denials:rate5m")}
    assert reasons == {"not_permitted"}


def test_nothing_fires_while_all_is_well(loaded: Prometheus) -> None:
    firing = [a["metric"] for a in loaded.query('ALERTS{alertstate="firing"}')]
    # on a machine that runs other tests too, changes may really be slow
    assert [a for a in firing if a["alertname"] != "ToolcribPropagationBurnFast"] == []


def test_what_is_scraped_has_the_names_and_labels_of_the_list_and_no_others(loaded: Prometheus) -> None:
    listed: dict[tuple[str, str], set[str]] = {}
    for service, kind, name, labels in re.findall(r"(?m)^(\w+) (\w+) (\w+)\{(.*)\}$", LIST.read_text()):
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            listed["toolcrib-" + service, name + suffix] = set(labels.split(",")) - {""}
    seen: set[tuple[str, str]] = set()
    for element in loaded.query('{__name__=~"toolcrib_.*"}'):
        metric: dict[str, Any] = element["metric"]
        key = metric["job"], metric["__name__"]
        assert key in listed, key
        # Prometheus drops labels that are empty
        assert set(metric) - TARGET <= listed[key], key
        seen.add(key)
    without_labels = {key for key, labels in listed.items() if not labels and key[0] != "toolcrib-runner"}
    assert without_labels <= seen


def test_a_grant_and_its_use_meet_in_one_query(loaded: Prometheus) -> None:
    used = loaded.query(
        "max by (kind, grant) (toolcrib_grant_info) and on (kind, grant) toolcrib_grant_uses_total > 0"
    )
    assert [e["metric"]["grant"] for e in used] == ["heist/safecracker"]


def test_prometheus_says_what_it_refuses(loaded: Prometheus) -> None:
    with pytest.raises(ValueError, match="parse error"):
        loaded.query("sum by (")
    assert httpx.get(loaded.url + "/-/healthy", trust_env=False, timeout=30).status_code == 200
