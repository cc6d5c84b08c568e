"""`make cluster-test` says at once what a machine lacks, before it installs or builds anything."""

import re
import shutil
from pathlib import Path

import pytest

from realparts import able, debian

ROOT = Path(__file__).parents[3]


def test_the_target_asks_before_it_does_anything_else() -> None:
    recipe = re.search(r"^cluster-test: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert recipe
    assert recipe[1].splitlines()[0].endswith("realparts/able.py")


def test_everything_that_is_missing_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user without root on a machine with nothing: no apt-get, no docker, no Go, and no wheel of Go for it."""
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    for name, value in {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(debian, "PROGRAMS", dict.fromkeys(debian.PROGRAMS, ("/nowhere/program",)))

    assert able.main() == 1
    said = capsys.readouterr().err
    for text in ("needs root", "docker.io", "no apt-get", "There is no Go", "make cluster-demo"):
        assert text in said, said
    assert not (tmp_path / "cache").exists()


def test_go_is_not_missing_where_it_can_be_taken_from_pypi_and_nothing_is_taken_yet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))

    assert "no Go" not in "".join(able.lacking(environ))
    assert not (tmp_path / "cache").exists()


def test_a_docker_client_that_cannot_build_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\n[ $1 = --version ] && echo 'Docker version 28.2.2, build 1'\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.setattr(debian, "missing", lambda *names: [])

    assert "docker-buildx-plugin" in "".join(able.lacking_programs())


def test_too_little_disk_or_memory_is_told_in_numbers(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    (disk,) = able.lacking_room(tmp_path / "not" / "yet", free + 10 * able.GB)
    (memory,) = able.lacking_memory("MemTotal:  8000000 kB\nMemAvailable:  1000000 kB\n")

    assert re.search(r"needs \d+ GB of disk .*, free are \d+", disk)
    assert memory == "it needs 4 GB of memory, available are 1.0"
    assert not list(able.lacking_room(tmp_path, 0))
    assert not list(able.lacking_memory("MemAvailable:  8000000 kB\n"))
