"""Every process keeps its collections short and, where it has an event loop, finds what holds it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import held_loops
from local_mode import LocalMode
from realparts.processes import Child, clean_environment, free_port, wait_until
from registry_harness import OPERATOR, binding, mint, tool
from registry_process import RegistryProcess, configuration, process
from toolcrib.process.garbage import FLOOR, GROWTH
from toolcrib.wire.publish import Publish, Revision

pytestmark = pytest.mark.usefixtures("fresh_programs")


def number(text: str, name: str) -> float:
    """The sum of a metric's series."""
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", trust_env=False, timeout=30).text


def rss(pid: int) -> float:
    """Resident memory in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def settled(text: str) -> bool:
    """Whether what the process had at its start is frozen."""
    return (
        number(text, "toolcrib_gc_passes_total") >= 1 and number(text, "toolcrib_gc_frozen_objects") > 20_000
    )


@pytest.mark.slow
def test_a_registry_whose_loop_is_held_says_what_held_it_and_counts_it(tmp_path: Path) -> None:
    seeing = mint("system:serviceaccount:team:all")
    tools = [tool(f"tool-{i}", scopes=("all:use",)) for i in range(15_000)]
    with process(configuration(tmp_path)) as running:
        # thousands of bindings, too: objects in objects, of which a pass looks at each
        others = (binding(f"other-{i}", ("other:use",)) for i in range(20_000))
        running.publish(*tools, bindings=(binding("all", ("all:use",)), *others))
        # a search makes an index of their words; once it is quiet, garbage is looked for in all that, on the loop
        answer = httpx.post(
            f"{running.url}/v1/search",
            headers={"Authorization": f"Bearer {seeing}"},
            json={"query": "tool"},
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        # a busy machine may hold the loop elsewhere before
        wait_until(lambda: by_a_pass(running) != [], timeout=60)
        told = metrics(running.metrics_url)

    line = by_a_pass(running)[0]
    assert line["level"] == "warning"
    assert line["cpu_ms"] >= 80
    assert line["held_ms"] >= 100
    assert line["place"] in held_loops.known()
    assert seeing not in json.dumps(line)
    assert number(told, "toolcrib_loop_held_total") >= 1
    assert number(told, "toolcrib_loop_held_seconds_total") >= 0.1
    assert f'toolcrib_loop_held_total{{place="{line["place"]}"}}' in told


@pytest.mark.slow
def test_first_lists_of_many_thousands_of_tools_hold_nobody_up(tmp_path: Path) -> None:
    people = [f"all-{i}" for i in range(4)]
    tools = [tool(f"tool-{i}", scopes=("all:use",)) for i in range(15_000)]
    # a scope of its own: no two of them share a view or an answer
    grants = tuple(binding(name, ("all:use", f"{name}:use")) for name in people)
    with process(configuration(tmp_path)) as running, ThreadPoolExecutor(len(people)) as threads:
        running.publish(*tools, bindings=grants)
        tokens = [mint(f"system:serviceaccount:team:{name}") for name in people]
        urls = [f"{running.url}/", f"{running.url}/v1/tools?limit=1"]

        def listed(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            answers = [httpx.get(url, headers=headers, timeout=60) for url in urls]
            assert [a.status_code for a in answers] == [200, 200]
            return len(answers[0].json()["tools"])

        assert list(threads.map(listed, tokens)) == [15_000] * len(people)
        told = metrics(running.metrics_url)
    assert held(running) == []
    assert number(told, "toolcrib_loop_held_total") == 0


def held(running: RegistryProcess) -> list[dict[str, Any]]:
    return [line for line in running.lines if held_loops.SAID in line.get("message", "")]


def by_a_pass(running: RegistryProcess) -> list[dict[str, Any]]:
    return [line for line in held(running) if line["place"].endswith(".Heap.make_pass")]


@pytest.mark.slow
def test_a_registry_that_was_stopped_and_goes_on_is_no_finding(tmp_path: Path) -> None:
    with process(configuration(tmp_path)) as running:
        running.child.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 0.5, timeout=10)
        running.child.send_signal(signal.SIGCONT)
        told = metrics(running.metrics_url)
    assert settled(told)
    assert number(told, "toolcrib_loop_held_total") == 0


@pytest.mark.slow
def test_hundreds_of_replaced_snapshots_leave_a_registrys_memory_as_it_was(tmp_path: Path) -> None:
    admin = {"Authorization": f"Bearer {mint(OPERATOR, audience='toolcrib-admin')}"}
    tools = tuple(tool(f"tool-{i}", input_schema={"type": "object", "properties": {}}) for i in range(200))
    with process(configuration(tmp_path)) as running, httpx.Client(trust_env=False, timeout=60) as client:

        def publish(seq: int) -> None:
            step = Publish(
                to=Revision(epoch=1, seq=seq), tools=tools, bindings=(binding("all", name=f"b-{seq}"),)
            )
            answer = client.post(
                f"{running.admin_url}/v1/admin/publish", headers=admin, content=step.model_dump_json()
            )
            assert answer.status_code == 200, answer.text

        for seq in range(1, 61):
            publish(seq)
        before = rss(running.child.pid)
        for seq in range(61, 301):
            publish(seq)
        after = rss(running.child.pid)
        told = metrics(running.metrics_url)
    # what may be garbage: half of what is frozen, and the floor; at most 120 bytes an object
    bound = (number(told, "toolcrib_gc_frozen_objects") * GROWTH + FLOOR) * 120 / 2**20
    assert after - before < bound


@pytest.mark.slow
def test_the_local_mode_freezes_what_it_has_at_its_start(tmp_path: Path) -> None:
    with LocalMode(tmp_path) as local:
        told = metrics(local.url)
    assert settled(told)
    assert "toolcrib_loop_held_total" in told


@pytest.mark.slow
def test_an_operator_that_waits_for_its_cluster_has_frozen_what_it_has(tmp_path: Path) -> None:
    port = free_port()
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{free_port()}"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context],
              "users": [{"name": "u", "user": {}}], "current-context": "x"}  # fmt: skip
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    (tmp_path / "token").write_text("token")
    argv = [
        sys.executable, "-m", "toolcrib_operator.main", "--registry-url", "http://127.0.0.1:1",
        "--kubeconfig", str(tmp_path / "kubeconfig"), "--token-file", str(tmp_path / "token"),
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with Child("operator", argv, log=tmp_path / "operator.log", env=clean_environment({})) as operator:
        operator.wait_ready(answers(url), timeout=60)
        assert settled(metrics(url))


def answers(url: str) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            return httpx.get(f"{url}/healthz", trust_env=False, timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    return ready


def test_a_runner_works_with_frozen_imports() -> None:
    script = (
        "import gc, toolcrib_runner.main as runner\n"
        "def run(settings, key): print(gc.get_freeze_count(), gc.get_threshold()[0]); return 0\n"
        "runner.run = run\n"
        "raise SystemExit(runner.main(['--name', 'planner', '--registry-url', 'http://127.0.0.1:1', '--task', 'x',"
        " '--model-url', 'http://127.0.0.1:1/v1', '--model', 'm']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    frozen, threshold = map(int, done.stdout.split())
    assert frozen > 20_000
    assert threshold > 700
