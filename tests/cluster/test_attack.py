"""`make attack` notices a defence that is taken away: each of these is a breach then, with the case that shows it."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attack import bulkheads, releases, servers, services
from attack.stage import Breach, Stage
from realparts.processes import wait_until
from realparts.required import require_real

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    require_real("kube-apiserver", "etcd", "kubectl")
    with Stage(tmp_path_factory.mktemp("attack")) as stage:
        yield stage


def broken(attack: Callable[[Stage, random.Random, int], int], stage: Stage, count: int = 20) -> str:
    """The promise that an attack finds broken; empty where all holds."""
    try:
        attack(stage, random.Random(1), count)
    except Breach as breach:
        return breach.promise
    return ""


def test_a_service_that_is_used_and_should_not_be_is_noticed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator is as it is; the rule is another one, by which a headless Service has to be used."""
    judged = services.Case.expected.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(services, "SETTLED", 5.0)
    monkeypatch.setattr(
        services.Case, "expected", property(lambda case: "used" if case.twist == "headless" else judged(case))
    )

    assert "selector says where it leads" in broken(services.attack, stage)


def test_a_tool_whose_server_can_be_edited_is_noticed(stage: Stage) -> None:
    server = stage.admission.server
    definition = json.loads(server.kubectl("get", "crd", "tools.toolcrib.dev", "-o", "json").stdout)
    for version in definition["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        rules = spec["x-kubernetes-validations"]
        spec["x-kubernetes-validations"] = [r for r in rules if "oldSelf.server" not in r["rule"]]
        assert len(spec["x-kubernetes-validations"]) == len(rules) - 1
    done = server.kubectl("replace", "-f", "-", input=json.dumps(definition))
    assert done.returncode == 0, done.stderr

    wait_until(lambda: "server of a Tool stays" in broken(servers.attack, stage))


def test_a_finalizer_that_everybody_may_remove_is_noticed(stage: Stage) -> None:
    name = "bindings-release.toolcrib.dev"
    done = stage.admission.server.kubectl("delete", "validatingadmissionpolicybinding", name)
    assert done.returncode == 0, done.stderr

    wait_until(lambda: "finalizer leaves a binding" in broken(releases.attack, stage))


def test_an_agent_without_a_limit_is_noticed(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.target("bulkheads", egress={"loopback": True}, limits={"agent_calls": 10_000})

        assert "refused at once" in broken(bulkheads.attack, stage, 60)
