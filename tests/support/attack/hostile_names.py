"""Runs a program whose name server lies: `python hostile_names.py … -m MODULE ARGUMENTS`.

A name below `.hostile.test` holds its own answers, `LABEL.ADDRESS.ADDRESS.then.ADDRESS.hostile.test`, addresses in hex: the
first lookup gets those before `then`, later ones the next, and the last again. `none` is no address, `lost` a packet that is
lost. Other names do not exist.
"""

import functools
import runpy
import sys
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from name_server import NameServer, Question, Record, name_server
from toolcrib_registry.adapters.outbound import http
from toolcrib_registry.adapters.outbound.cares import CaresResolver

DOMAIN = ".hostile.test"
TTL = 1


@dataclass
class LyingServer(NameServer):
    """Answers as the names say."""

    counted: Counter[tuple[str, int]] = field(default_factory=Counter)

    def answer(self, question: Question, packet: bytes, end: int) -> bytes | None:
        """What is sent back; None: the packet is lost."""
        self.records.clear()
        if question.name.endswith(DOMAIN):
            number = self.counted[question.name, question.kind]
            self.counted[question.name, question.kind] += 1
            labels = ".".join(question.name.removesuffix(DOMAIN).split(".")[1:])
            answers = labels.split(".then.")
            pieces = answers[min(number, len(answers) - 1)].split(".")
            if pieces == ["lost"]:
                return None
            self.records[question.name] = [
                Record(str(ip_address(bytes.fromhex(piece))), TTL) for piece in pieces if piece != "none"
            ]
        return super().answer(question, packet, end)


if __name__ == "__main__":
    _, *arguments = sys.argv
    at = arguments.index("-m")
    module = arguments[at + 1]
    sys.argv = [module, *arguments[at + 2 :]]
    with name_server(server=LyingServer()) as server:
        vars(http)["CaresResolver"] = functools.partial(CaresResolver, [f"127.0.0.1:{server.port}"])
        runpy.run_module(module, run_name="__main__", alter_sys=True)
