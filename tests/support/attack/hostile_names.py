"""Runs a program whose name server lies: `python hostile_names.py … -m MODULE ARGUMENTS`.

A name below `.hostile.test` holds its own answers, `LABEL.ANSWER.ANSWER.hostile.test`, each a list of addresses in hex joined
by `-`: the first lookup gets the first, later ones the next, and the last again. `none` is no such name, `lost` a name
server that does not answer.
"""

import runpy
import socket
import sys
import threading
import time
from collections import Counter
from ipaddress import ip_address
from typing import Any

RETRY = 5.0
DOMAIN = ".hostile.test"
_real = socket.getaddrinfo
_asked: Counter[str] = Counter()
_lock = threading.Lock()


def lying(host: Any, port: Any, *given: Any, **named: Any) -> Any:
    """What `socket.getaddrinfo` answers."""
    name = str(host.decode() if isinstance(host, bytes) else host).rstrip(".").lower()
    if not name.endswith(DOMAIN):
        return _real(host, port, *given, **named)
    answers = name.removesuffix(DOMAIN).split(".")[1:]
    with _lock:
        number = _asked[name]
        _asked[name] += 1
    answer = answers[min(number, len(answers) - 1)]
    if answer == "lost":
        time.sleep(RETRY)  # the packet is lost, and the system asks again only then
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")
    if answer == "none":
        raise socket.gaierror(socket.EAI_NONAME, "no such name")
    found = []
    for piece in answer.split("-"):
        address = ip_address(bytes.fromhex(piece))
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        place = (str(address), port) if address.version == 4 else (str(address), port, 0, 0)
        found.append((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place))
    return found


if __name__ == "__main__":
    socket.getaddrinfo = lying
    _, *arguments = sys.argv
    at = arguments.index("-m")
    module = arguments[at + 1]
    sys.argv = [module, *arguments[at + 2 :]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
