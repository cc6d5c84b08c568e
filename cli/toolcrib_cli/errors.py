"""How a command ends: one error class, one table of exit codes (documented in docs/reference/cli.md)."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_PERMITTED = 4
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.OK: "Done.",
    Exit.FAILED: "It was tried and failed. `validate`: a manifest was refused; `access explain`: no; `access diff --exit-code`: "
    "something changes (of `access` nothing else ends with 1); `audit verify`: a log is not whole; `doctor`: an item fails.",
    Exit.USAGE: "The command line or a setting is wrong. `doctor`: something could not be looked at.",
    Exit.UNREACHABLE: "The registry (or what the command needs) does not answer.",
    Exit.NOT_PERMITTED: "The identity may not do this, or there is no such tool: both answer alike.",
    Exit.INTERRUPTED: "Stopped by Ctrl-C.",
}


class CliError(Exception):
    """An end with a message for people, a hint what to do, and an exit code; `problem` is the code of a registry's problem."""

    def __init__(self, message: str, *, hint: str = "", code: Exit = Exit.FAILED, problem: str = "") -> None:
        self.message = message
        self.hint = hint
        self.code = code
        self.problem = problem
        super().__init__(message)
