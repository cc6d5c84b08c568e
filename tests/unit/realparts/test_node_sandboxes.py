"""A test node says within seconds why its pods cannot start, and nobody waits for them any longer."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from realparts import debian, lookup, node, sandboxes

MISSING = 'plugin type="bridge" failed (add): failed to find plugin "bridge" in path [/usr/lib/cni]'


def pod(ip: str = "") -> dict[str, Any]:
    return {"metadata": {"uid": "u1"}, "status": {"podIP": ip} if ip else {"phase": "Pending"}}


def event(first: int, last: int, message: str = MISSING, sandbox: str = "a") -> dict[str, Any]:
    return {
        "reason": "FailedCreatePodSandBox",
        "message": f"failed to setup network for sandbox {sandbox * 64}: {message}",
        "involvedObject": {"uid": "u1", "namespace": "heist", "name": "example-tools"},
        "firstTimestamp": f"2026-11-23T10:00:{first:02}Z",
        "lastTimestamp": f"2026-11-23T10:00:{last:02}Z",
    }


def test_the_same_error_for_ten_seconds_is_told_whatever_the_sandbox_is_called() -> None:
    said = sandboxes.stuck([event(0, 0), event(12, 12, sandbox="b")], [pod()])

    assert said.startswith("pod heist/example-tools: ")
    assert MISSING in said
    assert MISSING in sandboxes.stuck([event(3, 14)], [pod()])


@pytest.mark.parametrize(
    ("events", "pods"),
    [
        ([event(0, 0)], [pod()]),
        ([event(0, 9)], [pod()]),
        ([event(0, 0), event(12, 12, "the address is taken")], [pod()]),
        ([event(0, 0), event(12, 12)], [pod("10.214.0.7")]),
        ([event(0, 0), event(12, 12)], []),
        ([{**event(0, 30), "reason": "BackOff"}], [pod()]),
    ],
    ids=["once", "for nine seconds", "another error", "started since", "pod gone", "another event"],
)
def test_an_error_that_may_pass_ends_no_wait(
    events: list[dict[str, Any]], pods: list[dict[str, Any]]
) -> None:
    assert sandboxes.stuck(events, pods) == ""


def test_each_missing_plugin_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sandboxes, "FOLDER", tmp_path)
    for name in sandboxes.PLUGINS:
        (tmp_path / name).touch()
    sandboxes.require_plugins()
    (tmp_path / "bridge").unlink()

    with pytest.raises(debian.MissingPackagesError, match=r": bridge \(package containernetworking-plugins"):
        sandboxes.require_plugins()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[node.Node]:
    """A node that was never started; its kubectl tells of a pod whose sandbox fails."""
    folder = Path(tempfile.mkdtemp(prefix="tcn-", dir="/tmp"))
    events, pods = ({"items": [item]} for item in (event(0, 20), pod()))
    (folder / "kubectl").write_text(
        f"#!{sys.executable}\nimport sys\nprint({json.dumps(json.dumps(events))} if 'events' in sys.argv "
        f"else {json.dumps(json.dumps(pods))})\n"
    )
    (folder / "kubectl").chmod(0o755)
    monkeypatch.setattr(lookup, "path_of", lambda name: folder / name)
    monkeypatch.setattr(debian, "NODE", ())
    monkeypatch.setattr(sandboxes, "require_plugins", lambda: None)
    made = node.Node(folder)
    yield made
    made.close()
    shutil.rmtree(folder)


@pytest.mark.real
def test_a_program_that_waits_for_such_a_pod_is_ended_with_the_reason(broken: node.Node) -> None:
    with pytest.raises(sandboxes.SandboxError, match="failed to find plugin"):
        broken.run("sleep", "300", timeout=300)


@pytest.mark.real
def test_a_wait_for_such_a_pod_ends_with_the_reason(broken: node.Node) -> None:
    with pytest.raises(sandboxes.SandboxError, match="heist/example-tools"):
        broken.until(lambda: False, timeout=300)


@pytest.mark.real
def test_a_node_without_its_plugins_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "NODE", ())
    monkeypatch.setattr(sandboxes, "FOLDER", Path("/nowhere"))

    with pytest.raises(debian.MissingPackagesError, match="bridge, host-local, portmap, loopback"):
        node.Node()
