"""Traces never cost a request: not where they are off, nor where the collector hangs, is away, or the package is."""

import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from otlp_receiver import collecting
from realparts.processes import free_port, wait_until
from registry_harness import binding, mint, tool
from registry_process import configuration, process

AUTH = {"Authorization": f"Bearer {mint('system:serviceaccount:team:planner')}"}


def test_a_collector_that_hangs_slows_no_request_and_holds_up_no_stop(tmp_path: Path) -> None:
    with collecting(threading.Event()) as collector:
        settings = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "20",
            "OTEL_BSP_MAX_QUEUE_SIZE": "64",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32",
        }
        with process(configuration(tmp_path), environment=settings) as registry:
            registry.publish(tool("calculator"), bindings=(binding("planner"),))
            took = []
            with httpx.Client(headers=AUTH, timeout=60) as client:
                # more than the queue holds: it drops, it does not wait
                for _ in range(120):
                    started = time.perf_counter()
                    assert client.get(registry.url + "/stats").status_code == 200
                    took.append(time.perf_counter() - started)
            assert statistics.median(took) < 0.3
            assert max(took) < 5.0, "one that waits for an export waits for ten seconds"
            started = time.monotonic()
            registry.child.terminate()
            assert registry.child.wait(timeout=30) == 0
            assert time.monotonic() - started < 8


def test_a_collector_that_is_away_is_said_once_not_with_every_batch(tmp_path: Path) -> None:
    settings = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{free_port()}/v1/traces",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
    }
    with process(configuration(tmp_path), environment=settings) as registry:
        registry.publish(tool("calculator"))

        def said() -> list[str]:
            return [x["message"] for x in registry.lines if "traces cannot be sent" in x.get("message", "")]

        def another() -> bool:
            httpx.get(registry.url + "/stats", headers=AUTH, timeout=30)
            return bool(said())

        wait_until(another, timeout=60)
        deadline = time.monotonic() + 0.4
        while time.monotonic() < deadline:
            another()
        assert len(said()) == 1
        assert not [x for x in registry.lines if x["logger"].startswith(("opentelemetry", "urllib3"))]


@pytest.mark.slow
def test_nothing_of_opentelemetry_is_imported_unless_traces_are_asked_for() -> None:
    code = """
import sys
from toolcrib.telemetry import tracing
import toolcrib_operator.main, toolcrib_runner.main
endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
# the registry's libraries import it on their own
mains = (toolcrib_operator.main, toolcrib_runner.main)
for off in ({"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}):
    for main in mains:
        tracing.start(endpoint | off, "x", main._tracer)
for main in mains:
    tracing.start({}, "x", main._tracer)
assert not tracing.is_on()
# nobody else of ours may import it: an import contract says so
print([m for m in sys.modules if m.startswith("opentelemetry")])
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_without_the_package_one_line_names_the_remedy_and_the_service_goes_on() -> None:
    code = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from toolcrib.telemetry import logs, tracing\n"
        "logs.configure({})\n"
        "from toolcrib_runner.main import _tracer\n"
        "tracing.start({'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:9'}, 'x', _tracer)\n"
        "with tracing.span('y'):\n"
        "    print('goes on')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "goes on\n"
    assert done.stderr.count("\n") == 1
    assert "toolcrib[otel]" in done.stderr
