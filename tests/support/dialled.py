"""Runs a module and notes every address that it connects to, one a line: `python dialled.py FILE MODULE …`."""

import os
import runpy
import sys


def _noted(file: int) -> None:
    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "socket.connect":
            os.write(file, f"{arguments[1]!r}\n".encode())

    sys.addaudithook(note)


if __name__ == "__main__":
    _noted(os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
