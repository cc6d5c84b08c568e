"""`toolcrib` for many commands in a row: loaded once, forked for each. `python warm.py SOCKET MODULE…` serves.

A page's commands take a second of loading each, mostly on a busy machine; a fork of the loaded program takes none. What runs
is the command line itself, with the arguments, folder, environment, input and output of the process that asks.
"""

import importlib
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path

ASK = """import json, os, socket, sys
asked = json.dumps({{"argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}}).encode()
with socket.socket(socket.AF_UNIX) as line:
    line.connect({socket!r})
    socket.send_fds(line, [b"-"], [0, 1, 2])
    line.sendall(asked)
    line.shutdown(socket.SHUT_WR)
    ended = line.recv(16)
sys.exit(int(ended or 70))
"""


def write_command(folder: Path, socket_path: Path, program: str) -> None:
    """Write `folder/program`, which asks the server at the socket; its exit status is that of the command."""
    script = folder / f".{program}.py"
    script.write_text(ASK.format(socket=str(socket_path)), encoding="utf-8")
    command = folder / program
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{script}" "$@"\n', encoding="utf-8")
    command.chmod(0o755)


def serve(socket_path: str, program: str) -> None:
    """Answer until killed. Reads no argument of its own: `program` is what `sys.argv[0]` says in a fork."""
    main = importlib.import_module("toolcrib_cli.main").main
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{socket_path}-")
        listener.listen(16)
        os.rename(f"{socket_path}-", socket_path)  # it is there once it can be asked
        while True:
            line, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                os._exit(_run(line, main, program))
            line.close()


def _run(line: socket.socket, main: object, program: str) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, descriptors, _, _ = socket.recv_fds(line, 1, 3)
    asked = json.loads(line.makefile("rb").read())
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = [program, *asked["argv"]]
    status = 1
    try:
        assert callable(main)
        main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    line.send(str(status).encode())
    return status


if __name__ == "__main__":
    for name in sys.argv[3:]:
        importlib.import_module(name)
    serve(sys.argv[1], sys.argv[2])
