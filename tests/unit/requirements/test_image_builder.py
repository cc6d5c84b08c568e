"""`make image` says what docker lacks before it builds; docker is played by a script that would fail to build."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "requirements" / "image.py"
CLIENT = """#!/bin/sh
case "$*" in
  --version) echo "{version}" ;;
  "buildx version") exit {buildx} ;;
  *) echo "building" >&2; exit 1 ;;
esac
"""


def build(client: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DOCKER": str(client)}
    return subprocess.run(
        [sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False
    )


def put(folder: Path, version: str, *, buildx: bool) -> Path:
    client = folder / "docker"
    client.write_text(CLIENT.format(version=version, buildx=0 if buildx else 1))
    client.chmod(0o755)
    return client


@pytest.mark.parametrize("version", ["23.0.1", "28.2.2"])
def test_without_buildx_nothing_is_built_and_the_package_is_named(tmp_path: Path, version: str) -> None:
    done = build(put(tmp_path, f"Docker version {version}, build e6534b4", buildx=False))

    assert done.returncode == 1
    assert "docker-buildx-plugin" in done.stderr
    assert "building" not in done.stderr


@pytest.mark.parametrize(
    ("version", "buildx"),
    [("Docker version 28.2.2, build 1", True), ("Docker version 20.10.24+dfsg1, build 1", False), ("podman version 5.4.0", False)],
)  # fmt: skip
def test_a_client_that_can_build_is_used(tmp_path: Path, version: str, buildx: bool) -> None:
    assert "building" in build(put(tmp_path, version, buildx=buildx)).stderr


def test_without_docker_it_is_said_what_to_install(tmp_path: Path) -> None:
    done = build(tmp_path / "docker")

    assert done.returncode == 1
    assert "install docker 23 or newer with buildx" in done.stderr
    assert "Traceback" not in done.stderr
