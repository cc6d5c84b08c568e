"""How a command ends: one error class, one table of exit codes."""

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
    Exit.FAILED: "Failed. `validate`: a manifest would be rejected. `access explain`: not allowed. `access diff --exit-code`: "
    "something changes. `audit verify`: a log is not whole. `doctor`: an item fails. Other `access` commands never use it.",
    Exit.USAGE: "The command line or a setting is invalid. `doctor`: an item could not be checked.",
    Exit.UNREACHABLE: "The registry, or another service the command needs, does not answer.",
    Exit.NOT_PERMITTED: "Not permitted, or no such tool: both answer alike.",
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
