"""What a test node is made of, and what is said where something for it is missing. The node itself: make cluster-test."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import figures
from realparts import debian, lookup, node, nodeplan, sandboxes


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts are there, by name."""
    monkeypatch.setattr(lookup, "path_of", lambda name: Path("/bin") / name)


@pytest.mark.real
@pytest.mark.usefixtures("parts")
def test_the_plan_starts_every_program_after_what_it_needs(tmp_path: Path) -> None:
    plan = nodeplan.write(tmp_path, nodeplan.Addresses(3), detached=False, temporary=True)

    assert tuple(program["name"] for program in plan["programs"]) == nodeplan.PROGRAMS
    assert json.loads((tmp_path / "plan.json").read_text()) == plan
    assert plan["routes"] == ["10.214.3.0/24", "10.215.3.0/24"]
    assert json.loads((tmp_path / "kubelet.json").read_text())["cgroupRoot"] == f"/{plan['cgroup']}"


@pytest.mark.real
@pytest.mark.usefixtures("parts")
def test_a_node_that_comes_back_keeps_its_certificates(tmp_path: Path) -> None:
    at = nodeplan.Addresses(0)
    nodeplan.write(tmp_path, at, detached=True, temporary=False)
    before = (tmp_path / "pki" / "ca.crt").read_bytes()
    nodeplan.write(tmp_path, at, detached=True, temporary=False)

    assert (tmp_path / "pki" / "ca.crt").read_bytes() == before
    assert (tmp_path / "pki" / "ca.key").stat().st_mode & 0o077 == 0
    # each key belongs to its certificate
    context = ssl.create_default_context(cafile=tmp_path / "pki" / "ca.crt")
    for name in ("apiserver", "admin", "kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager"):
        context.load_cert_chain(tmp_path / "pki" / f"{name}.crt", tmp_path / "pki" / f"{name}.key")


def test_no_two_nodes_share_an_address() -> None:
    found = [
        address
        for number in range(32)
        for at in [nodeplan.Addresses(number)]
        for address in (at.host, at.node, at.pods, at.services)
    ]

    assert len(set(found)) == len(found)


@pytest.fixture
def folder() -> Iterator[Path]:
    """For a node: short enough for the sockets in it."""
    made = Path(tempfile.mkdtemp(prefix="tcn-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


def put(monkeypatch: pytest.MonkeyPatch, folder: Path, kubectl: str, jail: str = "") -> None:
    """What a node starts is these scripts; everything else it needs is taken to be there."""
    (folder / "kubectl").write_text(f"#!/bin/sh\n{kubectl}\n")
    (folder / "kubectl").chmod(0o755)
    (folder / "jail.py").write_text(jail)
    monkeypatch.setattr(lookup, "path_of", lambda name: folder / name)
    monkeypatch.setattr(debian, "NODE", ())
    monkeypatch.setattr(sandboxes, "require_plugins", lambda: None)
    monkeypatch.setattr(node, "_JAIL", folder / "jail.py")


@pytest.mark.real
def test_an_api_server_that_keeps_its_caller_waiting_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    put(monkeypatch, folder, "exec sleep 60")
    monkeypatch.setattr(node, "_SLOWEST", 0.1)
    made = node.Node(folder)

    assert (made._api_ready(), made._node_ready(), made._accounts_ready()) == (False, False, False)
    made.close()


@pytest.mark.real
def test_a_node_that_cannot_be_set_up_does_not_stay(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The API server is ready, and refuses what is applied."""
    put(monkeypatch, folder, '[ "$1" != apply ]', "import signal; signal.pause()")

    with pytest.raises(AssertionError, match="apply"):
        node.main(["up", "--folder", str(folder)])
    keeper = int((folder / "keeper.pid").read_text())
    assert not Path(f"/proc/{keeper}").exists()


@pytest.mark.real
def test_a_second_node_of_a_folder_is_refused_and_the_first_goes_on(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(monkeypatch, folder, "echo True", "import signal; signal.pause()")
    with node.Node(folder) as first:
        assert node.main(["up", "--folder", str(folder)]) == 1
        assert "runs already" in capsys.readouterr().err
        assert first._keeper
        assert first._keeper.poll() is None
        # gone before the node is ended: its pipe is broken, and closed all the same
        os.kill(first._keeper.pid, signal.SIGKILL)
        os.waitid(os.P_PID, first._keeper.pid, os.WEXITED | os.WNOWAIT)


def test_missing_packages_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(debian.PROGRAMS, "runc", ("/nowhere/no-such-runc",))
    monkeypatch.setitem(debian.PROGRAMS, "iptables", (sys.executable,))

    assert debian.missing("runc", "iptables") == ["runc"]
    with pytest.raises(debian.MissingPackagesError, match=r"runc \(packages of Debian.*debian\.py runc"):
        debian.require("runc", "iptables")


@pytest.mark.parametrize("library", ["/usr/lib/cni/bridge", "/usr/lib/x86_64-linux-gnu/libc.a"])
def test_what_is_not_on_path_is_looked_for_by_its_path_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str
) -> None:
    """Another package brings a program of the same name: iproute2 has a `bridge` on PATH."""
    namesake = tmp_path / Path(library).name
    namesake.write_text("#!/bin/sh\n")
    namesake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(debian.PROGRAMS, "plugins", (f"/nowhere{library}",))
    monkeypatch.setitem(debian.PROGRAMS, "program", (f"/nowhere/bin/{namesake.name}",))

    assert debian.missing("plugins", "program") == ["plugins"]


def test_without_root_nothing_is_installed_and_the_packages_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(debian.PROGRAMS, "runc", ("/nowhere/no-such-runc",))
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    with pytest.raises(debian.MissingPackagesError, match="runc"):
        debian.install("runc")


def test_an_unknown_package_is_refused_by_name() -> None:
    script = Path(debian.__file__)
    done = subprocess.run([sys.executable, script, "nonsense"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_figures_are_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_LINES", {})
    monkeypatch.setattr(figures, "_TABLES", {})
    figures.note("node ready after", "9.1 s")
    figures.table("Pods", ("pod", "memory"), [("registry", "210 MiB")])

    assert figures.lines() == [
        "node ready after  9.1 s",
        "",
        "Pods",
        "  pod       memory",
        "  registry  210 MiB",
    ]
