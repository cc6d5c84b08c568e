"""The image at work: each command runs as nobody, on a read-only root, without one capability."""

import json
import re
import time
from pathlib import Path

import httpx
import pytest

from containers import DATA, Container, once, running
from realparts import docker, processes
from registry_process import configuration

pytestmark = pytest.mark.node

SERVING = re.compile(r"127\.0\.0\.1:(\d+)")


def registry_settings(folder: Path, **changes: object) -> dict[Path, str]:
    """A registry's configuration as a mount; files in it are named by their place in the container."""
    path = configuration(folder, **{"store": {"kind": "embedded", "path": f"{DATA}/index"}, **changes})
    path.write_text(path.read_text().replace(str(folder), "/etc/toolcrib"))
    for each in (folder, *folder.iterdir()):
        each.chmod(0o755 if each.is_dir() else 0o644)
    return {folder: "/etc/toolcrib"}


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        ([], "Usage: toolcrib"),
        (["--help"], "Usage: toolcrib"),
        (["version"], "toolcrib "),
        (["operator", "--help"], "--registry-service"),
        (["serve", "--help"], "--admin-port"),
        (["agent", "run", "--help"], "--task"),
        (["example-tools", "--help"], "--port"),
        (["crds"], "CustomResourceDefinition"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_the_command_picks_what_it_is(engine: docker.Engine, command: list[str], shows: str) -> None:
    done = once(engine, *command)

    assert done.returncode == 0, done.stderr
    assert shows in done.stdout


@pytest.mark.parametrize("command", [["serv"], ["--wrong"], ["agent", "walk"]])
def test_a_wrong_command_is_named(engine: docker.Engine, command: list[str]) -> None:
    done = once(engine, *command)

    assert done.returncode == 2
    assert command[-1] in done.stderr
    assert "Traceback" not in done.stderr


def test_the_registry_answers_on_a_read_only_root_and_stops_in_time(
    engine: docker.Engine, tmp_path: Path
) -> None:
    agents, admin = processes.free_ports(2)
    mounts = registry_settings(tmp_path / "settings", port=agents, admin_port=admin)

    with running(
        engine, "crib-registry", "serve", "--config", "/etc/toolcrib/registry.yaml",
        network="host", writable=True, mounts=mounts,
    ) as container:  # fmt: skip
        url = f"http://127.0.0.1:{agents}"
        _wait_answers(container, f"{url}/healthz")
        # nobody has published yet, and nobody may see anything without a token
        assert httpx.get(f"{url}/", trust_env=False).status_code == 200
        assert httpx.get(f"http://127.0.0.1:{admin}/readyz", trust_env=False).status_code == 503
        asked = container.execute("toolcrib", "health", f"http://127.0.0.1:{admin}", "--ready")
        assert asked.returncode == 1
        assert "answered 503" in asked.stderr
        assert container.execute("toolcrib", "health", f"http://127.0.0.1:{admin}").returncode == 0
        _assert_ends_well(container)


def test_the_health_check_of_the_image_says_healthy(engine: docker.Engine, tmp_path: Path) -> None:
    mounts = registry_settings(tmp_path / "settings", port=8080, admin_port=8081)
    quick = ("--health-interval", "1s", "--health-start-period", "30s")

    with running(
        engine, "crib-healthy", "serve", "--config", "/etc/toolcrib/registry.yaml",
        writable=True, mounts=mounts, options=quick,
    ) as container:  # fmt: skip
        processes.wait_until(lambda: container.state()["Health"]["Status"] == "healthy", 60, 0.3)
        assert "/healthz answered 200" in container.state()["Health"]["Log"][-1]["Output"]


def test_the_health_check_follows_the_address_in_its_environment(engine: docker.Engine) -> None:
    quick = ("--health-interval", "1s", "--health-retries", "1", "--health-start-period", "1s")
    addresses = {"healthy": "http://127.0.0.1:9100", "unhealthy": "http://127.0.0.1:9101"}

    for status, address in addresses.items():
        with running(
            engine, f"crib-{status}", "example-tools", "--unverified", "--port", "9100", "--data", DATA,
            writable=True, environment={"TOOLCRIB_HEALTH_URL": address}, options=quick,
        ) as container:  # fmt: skip
            container.wait_for("example tools at")
            processes.wait_until(lambda c=container, s=status: c.state()["Health"]["Status"] == s, 60, 0.3)


def test_the_embedding_model_is_in_the_image_and_needs_no_network(engine: docker.Engine) -> None:
    code = (
        "import anyio; from toolcrib_registry.adapters.embedders.onnx import OnnxEmbedder as E;"
        "print(anyio.run(E.packaged().embed_request, ['read a file']).shape)"
    )

    done = once(engine, "-c", code, entrypoint="python")

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(1, 384)"


def test_the_example_tools_answer_and_stop_in_time(engine: docker.Engine) -> None:
    port = processes.free_port()

    with running(
        engine,
        "crib-tools",
        "example-tools",
        "--unverified",
        "--port",
        str(port),
        "--data",
        DATA,
        network="host",
        writable=True,
    ) as container:
        _wait_answers(container, f"http://127.0.0.1:{port}/healthz")
        _assert_ends_well(container)


def test_an_operator_without_a_cluster_says_so_and_ends(engine: docker.Engine) -> None:
    done = once(engine, "operator", "--registry-url", "http://127.0.0.1:8081")

    assert done.returncode == 1
    assert "the operator cannot run" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_operator_whose_cluster_is_away_lives_and_stops_in_time(
    engine: docker.Engine, tmp_path: Path
) -> None:
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "kubeconfig").write_text(json.dumps(_kubeconfig(processes.free_port())))
    for path, mode in ((settings, 0o755), (settings / "kubeconfig", 0o644)):
        path.chmod(mode)

    with running(
        engine, "crib-operator", "operator", "--registry-url", "http://127.0.0.1:8081",
        "--kubeconfig", "/etc/toolcrib/kubeconfig", mounts={settings: "/etc/toolcrib"},
    ) as container:  # fmt: skip
        container.wait_for("serves /healthz")
        assert container.execute("toolcrib", "health").returncode == 0
        assert container.execute("toolcrib", "health", "--ready").returncode == 1
        _assert_ends_well(container)


def test_a_runner_without_its_registry_lives_and_stops_in_time(engine: docker.Engine, tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.mkdir(mode=0o755)
    (settings / "token").write_text("not-a-token")

    with running(
        engine, "crib-runner", "agent", "run", "--name", "solo", "--registry-url", "http://127.0.0.1:1",
        "--token-file", "/etc/toolcrib/token", "--metrics-port", "8092", "--keep-serving",
        mounts={settings: "/etc/toolcrib"},
    ) as container:  # fmt: skip
        container.wait_for("/metrics")
        assert container.execute("toolcrib", "health").returncode == 0
        _assert_ends_well(container)


def _wait_answers(container: Container, url: str) -> None:
    def answers() -> bool:
        assert container.state()["Running"], container.logs()
        try:
            return httpx.get(url, trust_env=False, timeout=2).is_success
        except httpx.TransportError:
            return False

    processes.wait_until(answers, 60, 0.1)


def _assert_ends_well(container: Container) -> None:
    """At SIGTERM: with 0, long before docker or a kubelet would kill it."""
    started = time.monotonic()
    container.engine.run("stop", "--time", "25", container.name)
    took = time.monotonic() - started
    state = container.state()
    assert (state["Running"], state["ExitCode"], state["OOMKilled"]) == (False, 0, False), container.logs()
    assert took < 20, container.logs()


def _kubeconfig(port: int) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "none"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
