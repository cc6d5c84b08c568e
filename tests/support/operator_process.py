"""The operator as a process, against a real API server."""

import ast
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from realparts import processes

_DIALLED = Path(__file__).with_name("dialled.py")


class OperatorProcess(processes.Child):
    """A real operator process against a real API server.

    A leader that ends in order gives up its Lease at once. Who waits for a Lease that runs out says so by `FAST`: such a
    leader ends itself when API server or machine stand still for some seconds.
    """

    FAST = ("--lease-duration", "6", "--lease-renew", "4.5")

    def __init__(
        self,
        kubeconfig: Path,
        urls: Sequence[str],
        folder: Path,
        *options: str,
        lease: str = "toolcrib-operator",
        observed: bool = False,
    ) -> None:
        self.port = processes.free_port()
        self._dialled = folder / "dialled"
        program = [str(_DIALLED), str(self._dialled)] if observed else ["-m"]
        arguments = [
            sys.executable, *program, "toolcrib_operator.main", "--kubeconfig", str(kubeconfig),
            "--port", str(self.port), "--lease-name", lease, "--lease-duration", "30", "--lease-renew", "25",
            "--lease-retry", "0.3", "--heartbeat", "0.5", "--inventory", "1", "--prove-after", "2", *options,
        ]  # fmt: skip
        for url in urls:
            arguments += ["--registry-url", url]
        log = folder / f"operator-{self.port}.log"
        super().__init__("operator", arguments, log=log, env=processes.clean_environment(), cwd=folder)

    @property
    def dialled(self) -> set[tuple[str, int]]:
        """Each address that it, or an earlier one of this folder, connected to, while `observed`: host and port."""
        found = map(ast.literal_eval, self._dialled.read_text().splitlines())
        return {tuple(address[:2]) for address in found}

    def get(self, path: str) -> httpx.Response:
        """A request to its health port."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=30, trust_env=False)

    def report(self) -> dict[str, Any]:
        """`/readyz`, or nothing while it does not answer."""
        with contextlib.suppress(httpx.TransportError):
            found: dict[str, Any] = self.get("/readyz").json()
            return found
        return {}

    def leads(self) -> bool:
        """Whether it leads and everything is well."""
        report = self.report()
        return report.get("role") == "leader" and not report["problems"] and bool(report.get("revision"))

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise KeyError(name)

    def propagated(self) -> tuple[float, float]:
        """How many revisions all replicas have confirmed, and the seconds that took together, by its own record."""
        return self.metric("toolcrib_propagation_seconds_count"), self.metric(
            "toolcrib_propagation_seconds_sum"
        )

    def propagation(self, before: tuple[float, float]) -> float:
        """The seconds from the change that was made after `before` to its confirmation; waits for that."""
        processes.wait_until(lambda: self.propagated()[0] > before[0])
        return self.propagated()[1] - before[1]


@contextlib.contextmanager
def running(*operators: OperatorProcess) -> Iterator[OperatorProcess]:
    """Start operators one after the other and stop them in the end; yields the first, leading."""
    try:
        for operator in operators:
            operator.start()
            operator.wait_ready(lambda o=operator: bool(o.report()), 60)  # type: ignore[misc]
        operators[0].wait_ready(operators[0].leads, 60)
        yield operators[0]
    finally:
        for operator in operators:
            with contextlib.suppress(ProcessLookupError, RuntimeError):
                operator.resume()
            operator.stop(grace=20)
