"""The files an image is made from, without docker: what a build may read, and what it must never keep."""

import fnmatch
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from realparts import images

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
STAGES = re.split(r"^FROM ", DOCKERFILE.replace("\\\n", " "), flags=re.MULTILINE)[1:]


def stage(name: str) -> str:
    """The instructions of a stage, without comments."""
    (found,) = [s for s in STAGES if re.match(rf"\S+ AS {name}\n", s)]
    return "\n".join(line for line in found.splitlines() if not line.startswith("#"))


def test_a_build_reads_what_is_allowed_and_nothing_else() -> None:
    lines = [x for x in (ROOT / ".dockerignore").read_text().splitlines() if x and not x.startswith("#")]
    read = {path.relative_to(ROOT).as_posix() for path in images.context_files()}

    assert lines[0] == "*"
    for never in (
        ".git/config",
        ".venv/bin/python",
        "dist/x.whl",
        "tests/conftest.py",
        "helm/toolcrib/values.yaml",
    ):
        assert not any(path.startswith(never.split("/")[0] + "/") for path in read), never
    assert not [path for path in read if fnmatch.fnmatch(path, "*.pyc") or "__pycache__" in path]


def test_every_file_that_the_build_copies_is_allowed() -> None:
    copied = [
        word
        for line in DOCKERFILE.replace("\\\n", " ").splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    read = {path.relative_to(ROOT).as_posix() for path in images.context_files()}

    assert copied
    for name in copied:
        assert any(path == name or path.startswith(f"{name}/") for path in read), name


def test_the_wheel_of_a_build_has_all_that_the_wheel_of_the_repository_has(tmp_path: Path) -> None:
    """Built from a copy that holds what a build may read: an allowlist that forgets a package or the model shows."""
    for path in images.context_files():
        target = tmp_path / "context" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target) if _same_disk(path, tmp_path) else shutil.copyfile(path, target)
    inside = set[str]()
    for distribution in ("", "client"):
        builder: Any = WheelBuilder(str(tmp_path / "context" / distribution))
        inside |= {included.distribution_path for included in builder.recurse_included_files()}

    for package in ("core/toolcrib", "operator/toolcrib_operator", "registry_api/toolcrib_registry",
                    "agent_runner/toolcrib_runner", "cli/toolcrib_cli", "client/toolcrib_client"):  # fmt: skip
        held = {
            p.relative_to((ROOT / package).parent).as_posix()
            for p in (ROOT / package).rglob("*")
            if p.is_file()
        }
        held = {name for name in held if "__pycache__" not in name}
        assert held <= inside, held - inside


def test_the_last_stage_has_no_installer_no_build_argument_that_tells_and_no_root() -> None:
    last = stage("image")

    assert not re.search(r"\bpip install|apt-get|curl |wget ", last)
    assert set(re.findall(r"^ARG (\w+)", last, re.MULTILINE)) == {"VERSION", "REVISION", "CREATED", "SOURCE"}
    assert re.findall(r"^USER (\S+)", last, re.MULTILINE)[-1] == "65532:65532"
    assert 'ENTRYPOINT ["toolcrib"]' in last
    assert 'CMD ["--help"]' in last
    assert "--mount=type=secret" not in last


def test_an_index_and_its_certificates_come_as_secrets_only() -> None:
    assert "--mount=type=secret,id=pip.conf" in stage("dependencies")
    assert not re.search(r"^(ARG|ENV) .*(INDEX|PROXY|CERT|TOKEN)", DOCKERFILE, re.MULTILINE | re.IGNORECASE)
    for line in DOCKERFILE.replace("\\\n", " ").splitlines():
        if "pip" in line and " install " in line and "--no-index" not in line:
            for command in re.findall(r"pip [^;]*\binstall\b[^;]*", line):
                assert "--require-hashes" in command, command
                assert "--only-binary :all:" in command, command


@pytest.mark.parametrize("argument", ["BASE_IMAGE", "BUILDER_IMAGE"])
def test_every_image_it_stands_on_can_be_chosen(argument: str) -> None:
    assert re.search(rf"^ARG {argument}=", DOCKERFILE, re.MULTILINE)
    for each in STAGES:
        assert re.match(r"(\$\{(BASE|BUILDER)_IMAGE\}|dependencies|base) AS ", each), each.split("\n")[0]


def test_what_builds_the_image_is_in_the_versions_that_the_project_locks() -> None:
    build, dev = ((ROOT / "requirements" / f"{name}.txt").read_text() for name in ("build", "dev"))
    built, locked = (dict(re.findall(r"^(\S+)==(\S+)", lock, re.MULTILINE)) for lock in (build, dev))

    assert "hatchling" in built.keys() & locked.keys()
    assert {name: built[name] for name in built.keys() & locked.keys()} == {
        name: locked[name] for name in built.keys() & locked.keys()
    }


def _same_disk(path: Path, folder: Path) -> bool:
    return path.stat().st_dev == folder.stat().st_dev
