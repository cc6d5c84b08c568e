"""Runs a program in a process group of its own until it ends, or until the process that started this is gone.

    python -I -S keeper.py FD COMMAND [ARGUMENT]...

FD is the read end of a pipe whose write end the starter alone holds: it closes when the starter dies, by SIGKILL too. Works
the same on Linux and macOS. It is no part of the package's imports: it must start quickly and needs nothing.
"""

import contextlib
import os
import select
import signal
import sys

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""
NOT_FOUND = 127


def main() -> int:
    pipe, command = int(sys.argv[1]), sys.argv[2:]
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if child == 0:
        _become(command, pipe)
    # the program's ends of these pipes must be the only ones
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    ready, _, _ = select.select([pipe, woken], [], [])
    if woken not in ready:
        _signal(child, signal.SIGTERM)
        select.select([woken], [], [], GRACE)
    _signal(child, signal.SIGKILL)  # what it started and left behind, too
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _become(command: list[str], pipe: int) -> None:
    try:
        os.setsid()
        os.close(pipe)
        signal.set_wakeup_fd(-1)
        for each in (signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(each, signal.SIG_DFL)
        os.execvp(command[0], command)  # noqa: S606 - a shell would read the arguments again
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    finally:
        os._exit(NOT_FOUND)


def _signal(child: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child, number)


if __name__ == "__main__":
    sys.exit(main())
