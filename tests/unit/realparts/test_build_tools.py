"""`make build-tools`: which program is taken, what is refused, and that a build leaves all or nothing.

Go is played by a small script here: what is under test is our side of it. CI builds the real parts.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import stand_in_go
from realparts import lookup, processes
from realparts.parts import PARTS, Part
from stand_in_go import GO, SCRIPT, leftovers, put, run

TESTS = Path(__file__).parents[2]
ETCD = PARTS["etcd"]


def says(version: str) -> str:
    return f"#!/bin/sh\necho 'Version: v{version}-custom'\n"


def cache(environ: Mapping[str, str], script: str = "#!/bin/sh\n") -> Path:
    path = lookup.cache_path(ETCD, environ)
    path.parent.mkdir(parents=True)
    put(path.parent, path.name, script)
    lookup.write_checksum(path)
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with nothing in it: the shell's own tools, and empty folders for us to fill."""
    return stand_in_go.environment(tmp_path)


@pytest.fixture
def with_go(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    put(tmp_path / "path", "go", GO)
    stand_in_go.tools(tmp_path / "path")
    return {**environ, "GO_VERSION": "go1.26.8"}


def test_assets_come_before_path_and_path_before_the_cache(environ: dict[str, str], tmp_path: Path) -> None:
    in_cache = cache(environ)
    sources = []
    for folder, version in ((None, ""), ("path", "3.6.1"), ("assets", "3.5.30")):
        if folder:
            put(tmp_path / folder, "etcd", says(version))
        found = lookup.find(ETCD, environ)
        assert found
        sources.append((found.source, found.version))

    assert in_cache.exists()
    assert sources == [("the cache", "3.6.16"), ("PATH", "3.6.1"), ("KUBEBUILDER_ASSETS", "3.5.30")]


@pytest.mark.parametrize(
    ("name", "old"), [("kubectl", "1.33.9"), ("kube-apiserver", "1.9.4"), ("etcd", "3.4.0")]
)
def test_a_program_too_old_is_not_used_and_named(
    environ: dict[str, str], tmp_path: Path, name: str, old: str
) -> None:
    put(tmp_path / "path", name, says(old))
    notes: list[str] = []

    assert lookup.find(PARTS[name], environ, notes.append) is None
    assert f"{name} {old} from PATH is not used: older than" in notes[0]


def test_a_program_that_cannot_run_is_not_used(environ: dict[str, str], tmp_path: Path) -> None:
    put(tmp_path / "path", "etcd", "#!/bin/sh\necho 3.6.1; exit 1\n")

    assert lookup.find(ETCD, environ) is None


@pytest.mark.parametrize("binary", ["weaviate-server", "weaviate"])
def test_weaviate_is_dated_by_the_build_information_in_the_file(
    environ: dict[str, str], tmp_path: Path, binary: str
) -> None:
    module = "github.com/weaviate/weaviate"
    put(tmp_path / "path", binary, f"\0\0path\t{module}/cmd\nmod\t{module}\tv1.38.2\th1:=\n")

    found = lookup.find(PARTS["weaviate"], environ)

    assert found
    assert found.version == "1.38.2"


@pytest.mark.parametrize("damage", ["content", "checksum", "no checksum"])
def test_a_cached_program_whose_checksum_is_wrong_is_rejected(environ: dict[str, str], damage: str) -> None:
    path = cache(environ)
    assert lookup.find(ETCD, environ)
    checksum = path.with_name("etcd.sha256")
    match damage:
        case "content":
            path.write_text("something else")
        case "checksum":
            checksum.write_text("0" * 64 + "  etcd\n")
        case _:
            checksum.unlink()
    notes: list[str] = []

    assert lookup.find(ETCD, environ, notes.append) is None
    assert "its checksum is wrong" in notes[0]


def test_the_checksum_file_is_one_that_sha256sum_reads(environ: dict[str, str]) -> None:
    path = cache(environ)

    checked = subprocess.run(["sha256sum", "-c", "etcd.sha256"], cwd=path.parent, capture_output=True)

    assert checked.returncode == 0


def test_a_missing_part_is_built_once_with_progress_and_found_afterwards(with_go: dict[str, str]) -> None:
    first, second = run(with_go, "etcd"), run(with_go, "etcd")
    printed = run(with_go, "--print-path", "etcd")

    assert first.returncode == second.returncode == printed.returncode == 0, first.stderr
    assert "building: 1 of at most 2 packages" in first.stdout
    assert "from the cache" in second.stdout
    assert Path(printed.stdout.strip()) == lookup.cache_path(ETCD, with_go)
    assert Path(with_go["XDG_CACHE_HOME"], "builds").read_text() == "built\n"


def test_a_damaged_part_is_built_again(with_go: dict[str, str]) -> None:
    path = cache(with_go)
    path.write_text("damaged")

    assert run(with_go, "etcd").returncode == 0
    assert lookup.checksum_holds(path)


def test_two_runs_at_once_build_once(with_go: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "etcd"]
    runs = [processes.spawn(command, env=with_go, stdout=subprocess.DEVNULL) for _ in range(2)]

    assert [each.wait(60) for each in runs] == [0, 0]
    assert (tmp_path / "cache" / "builds").read_text() == "built\n"


def test_a_failed_build_shows_what_go_said_and_leaves_nothing(with_go: dict[str, str]) -> None:
    result = run({**with_go, "GO_FAILS": "no space left on device"}, "etcd")

    assert result.returncode == 1
    assert "no space left on device" in result.stderr
    assert leftovers(with_go) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing_behind(
    with_go: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    hanging = tmp_path / "hanging"
    log = tmp_path / "log"
    command = [sys.executable, str(SCRIPT), "etcd"]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    settings = {**with_go, "GO_HANGS": str(hanging), "TMPDIR": str(temporary)}
    with processes.Child("build", command, log=log, env=settings) as child:
        child.wait_ready(hanging.exists, timeout=30)
        os.kill(child.pid, number)

        assert child.wait(30) == 130
    assert "nothing is half-written" in log.read_text()
    assert leftovers(with_go) == []
    assert list(temporary.iterdir()) == []


def test_a_build_that_was_started_with_sigint_ignored_can_be_interrupted(
    with_go: dict[str, str], tmp_path: Path
) -> None:
    """A shell that is no terminal's starts its background jobs so."""
    hanging = tmp_path / "hanging"
    job = f"trap '' INT; exec {sys.executable} {SCRIPT} etcd"
    with processes.Child(
        "build", ["/bin/sh", "-c", job], log=tmp_path / "log", env={**with_go, "GO_HANGS": str(hanging)}
    ) as child:
        child.wait_ready(hanging.exists, timeout=30)
        os.kill(child.pid, signal.SIGINT)

        assert child.wait(30) == 130


def test_the_remains_of_a_killed_build_are_swept_by_the_next(with_go: dict[str, str]) -> None:
    remains = lookup.cache_folder(with_go) / ".building-killed"
    remains.mkdir(parents=True)

    assert run(with_go, "etcd").returncode == 0
    assert not remains.exists()


def test_listing_builds_nothing_and_tells_what_is_missing(with_go: dict[str, str]) -> None:
    result = run(with_go, "--list", "etcd")

    assert result.returncode == 1
    assert "`make build-tools`" in result.stdout
    assert leftovers(with_go) == []


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_each_part_states_the_version_that_its_module_pins(part: Part) -> None:
    pinned = (part.folder / "go.mod").read_text()

    assert re.search(rf"^\t{re.escape(part.requires)} v{re.escape(part.version)}\b", pinned, re.MULTILINE)
    assert part.package in pinned


@pytest.mark.parametrize(("required", "outcome"), [("0", "1 skipped"), ("1", "1 error")])
def test_without_the_parts_a_test_is_skipped_or_fails_where_they_are_required(
    environ: dict[str, str], required: str, outcome: str
) -> None:
    node = f"{TESTS}/cluster/test_real_parts.py::test_the_signing_keys_can_be_made_public"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", node],
        env={**environ, "TOOLCRIB_REQUIRE_REAL": required},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert outcome in result.stdout
    assert "make build-tools" in result.stdout


def test_where_parts_are_required_a_test_of_a_part_that_is_skipped_for_any_reason_fails(
    tmp_path: Path,
) -> None:
    skipped = tmp_path / "test_skipped.py"
    skipped.write_text(
        "import pytest\n"
        "@pytest.mark.real\n"
        "@pytest.mark.skip(reason='flaky')\n"
        "def test_of_a_part(): pass\n"
        "def test_of_something_else(): pytest.skip('not on this system')\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", skipped],
        env={"PYTHONPATH": f"{TESTS}:{TESTS / 'support'}", "TOOLCRIB_REQUIRE_REAL": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert result.returncode == 1
    assert "1 skipped, " in result.stdout
    assert "skipped, but TOOLCRIB_REQUIRE_REAL is set" in result.stdout
