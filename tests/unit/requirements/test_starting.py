"""What a start of each program costs beyond its own work: nothing that is only for development, nothing compiled twice."""

import subprocess
import sys

import pytest

PROGRAMS = (
    "toolcrib_cli.main",
    "toolcrib_cli.local.up",
    "toolcrib_operator.main",
    "toolcrib_registry.main",
    "toolcrib_runner.main",
)
GRAMMARS = {"lark", "rfc3987_syntax", "cyclonedx"}
"""Checks of schemas that only builds of the image need; to import them takes 2 s of processor time."""


def loaded(program: str) -> set[str]:
    """The packages in a process that has imported the program."""
    code = f"import sys, {program}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_loads_what_only_builds_need(program: str) -> None:
    assert not loaded(program) & GRAMMARS


def test_processes_of_the_tests_keep_what_they_compiled() -> None:
    code = "import sys; print(sys.dont_write_bytecode)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
