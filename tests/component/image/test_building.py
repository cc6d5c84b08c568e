"""A build from nothing: what it is handed in secret, and where it runs, is in no byte of the image."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from realparts import docker, images

pytestmark = pytest.mark.node

FRESH = "toolcrib:fresh"
MARKER = "marker-5e1f7c.invalid"


def test_a_build_from_nothing_keeps_no_secret_and_no_place(engine: docker.Engine, tmp_path: Path) -> None:
    """Every layer is read, also what a later one hides: `docker save` keeps them as plain tar files."""
    saved = tmp_path / "image.tar"
    sought = [MARKER, str(images.ROOT), str(docker.cache_folder()), *own_authorities()]
    try:
        images.make_toolcrib(engine, FRESH, "--no-cache", environment={"PIP_TRUSTED_HOST": MARKER})
        engine.run("save", "-o", str(saved), FRESH, timeout=300)
    finally:
        engine.run("rmi", FRESH, check=False)

    assert found(saved, [text.encode() for text in sought]) == set()
    # the search finds what is there
    assert found(saved, [b"org.opencontainers.image.title"])


def test_the_engine_of_the_tests_leaves_network_and_mounts_of_the_machine_alone(
    engine: docker.Engine,
) -> None:
    if not engine.own:
        pytest.skip("somebody's own engine")
    assert not Path("/sys/class/net/docker0").exists()
    assert str(docker.cache_folder() / "docker") not in Path("/proc/self/mountinfo").read_text()
    for program in filter(None, map(shutil.which, ("iptables", "ip6tables"))):
        rules = subprocess.run([program, "-S"], capture_output=True, text=True).stdout
        assert "DOCKER" not in rules
    assert json.loads(engine.run("network", "inspect", "host").stdout)


def own_authorities() -> list[str]:
    """A line of each certificate that this machine's administrator added."""
    folder = Path("/usr/local/share/ca-certificates")
    texts = [path.read_text(errors="replace") for path in folder.rglob("*.crt")] if folder.is_dir() else []
    return [
        match[1] for text in texts if (match := re.search(r"-----BEGIN CERTIFICATE-----\s+.+\n(.+)\n", text))
    ]


def found(path: Path, sought: list[bytes]) -> set[bytes]:
    """Which of the byte strings are anywhere in a file."""
    seen: set[bytes] = set()
    rest = b""
    longest = max(map(len, sought))
    with path.open("rb") as file:
        while chunk := file.read(8 << 20):
            text = rest + chunk
            seen |= {each for each in sought if each in text}
            rest = text[-longest:]
    return seen
