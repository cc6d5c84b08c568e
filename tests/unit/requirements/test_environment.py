"""Making the environment on a machine that is not as it should be: a message that helps, and nothing half-made."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "requirements" / "environment.py"
WITHOUT_VENV = 'case "$*" in *ensurepip*) exit 1;; *version_info*) echo 3 12;; esac'
TOO_OLD = 'case "$*" in *version_info*) echo 3 10;; esac'
BROKEN = "exit 127"


def complete(version: str, microseconds: int = 0) -> str:
    """A Python of this version and speed, which notes that it was asked for an environment, and fails at it."""
    answer = f'*perf_counter*) echo {microseconds};; *version_info*) echo {version};; --version) echo "Python {version.replace(" ", ".")}";;'
    return f'case "$*" in *venv\\ /*) echo asked >> "$0.log"; exit 1;; {answer} esac'


def run(folder: Path, pythons: dict[str, str], **environment: str) -> subprocess.CompletedProcess[str]:
    """The script, where these are the Pythons that there are."""
    programs = folder / "bin"
    programs.mkdir()
    for name, body in pythons.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder / "venv")],
        env={"PATH": str(programs), "HOME": str(folder), **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_without_a_supported_python_it_says_which_ones_are(tmp_path: Path) -> None:
    done = run(tmp_path, {"python3": TOO_OLD, "python3.13": BROKEN})

    assert done.returncode == 1
    assert "needs Python 3.11, 3.12 or 3.13" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_without_venv_is_named_with_the_package_to_install(tmp_path: Path) -> None:
    done = run(tmp_path, {"python3.12": WITHOUT_VENV})

    assert done.returncode == 1
    assert "python3.12 (3.12) cannot make virtual environments" in done.stderr
    assert "apt-get install python3-venv" in done.stderr


def test_the_newest_python_that_works_is_taken(tmp_path: Path) -> None:
    pythons = {"python3.13": BROKEN, "python3.12": complete("3 12"), "python3.11": complete("3 11")}

    done = run(tmp_path, pythons)

    assert "with Python 3.12" in done.stdout
    assert (tmp_path / "bin" / "python3.12.log").exists()
    assert not (tmp_path / "bin" / "python3.11.log").exists()


def test_the_python_that_is_named_is_taken_before_all_others(tmp_path: Path) -> None:
    pythons = {"python3.12": complete("3 12"), "python3.11": complete("3 11")}

    run(tmp_path, pythons, PYTHON=os.path.join(tmp_path, "bin", "python3.11"))

    assert (tmp_path / "bin" / "python3.11.log").exists()
    assert not (tmp_path / "bin" / "python3.12.log").exists()


def test_of_pythons_of_one_version_one_that_is_much_faster_is_taken_and_said(tmp_path: Path) -> None:
    pythons = {
        "python3.12": complete("3 12", 9_000),
        "python3": complete("3 12", 5_000),
        "python": complete("3 11", 1_000),
    }

    done = run(tmp_path, pythons)

    assert [each.name for each in (tmp_path / "bin").glob("*.log")] == ["python3.log"]
    programs = tmp_path / "bin"
    assert f"{programs / 'python3'} is much faster than {programs / 'python3.12'}" in done.stdout


def test_the_environment_that_is_about_to_be_made_gives_no_python(tmp_path: Path) -> None:
    made = tmp_path / "venv" / "bin"
    made.mkdir(parents=True)
    (made / "python3.12").write_text(f"#!/bin/sh\n{complete('3 12', 1)}\n")
    (made / "python3.12").chmod(0o755)

    run(tmp_path, {"python3.12": complete("3 12", 9_000)}, PATH=f"{tmp_path / 'bin'}:{made}")

    assert (tmp_path / "bin" / "python3.12.log").exists()


def test_a_python_that_is_a_little_faster_changes_nothing_nor_does_one_beside_the_one_that_is_named(
    tmp_path: Path,
) -> None:
    pythons = {"python3.12": complete("3 12", 6_000), "python3": complete("3 12", 5_000)}
    run(tmp_path, pythons)
    assert (tmp_path / "bin" / "python3.12.log").exists()

    slow = tmp_path / "named"
    slow.mkdir()
    path = os.path.join(slow, "bin", "python3.12")
    run(slow, {"python3.12": complete("3 12", 9_000), "python3": complete("3 12", 1)}, PYTHON=path)

    assert [each.name for each in (slow / "bin").glob("*.log")] == ["python3.12.log"]


def test_a_failure_ends_with_what_did_not_work(tmp_path: Path) -> None:
    done = run(tmp_path, {"python3.12": complete("3 12")})

    assert done.returncode == 1
    assert "This did not work: python3.12 -m venv" in done.stderr
    assert "Traceback" not in done.stderr
