"""What attacks run against: registry processes as `serve` starts them, with backends of ours on loopback."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

import held_loops
from admission_server import ROOT, Admission, admission_server
from realparts import lookup
from registry_harness import OPERATOR, mint
from registry_process import RegistryProcess, configuration, process
from stub_server import Answer, Asked, answering
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import (
    Credential,
    Credentials,
    Publish,
    PublishedBinding,
    PublishedTool,
    Removed,
    Revision,
)

SERVICE_RANGE = "198.51.100.0/24"
"""Addresses for documentation: what is dialled there reaches nobody."""
NAMESPACES = ("team", "north", "south", "evil")
JSON = {"Content-Type": "application/json"}


class Breach(Exception):
    """A case in which a promise did not hold; `case` is what reproduces it."""

    def __init__(self, promise: str, **case: Any) -> None:
        self.promise, self.case = promise, case
        super().__init__(promise)


def hold(promise: str, held: object, **case: Any) -> None:
    """Raise a Breach unless `held`."""
    if not held:
        raise Breach(promise, **case)


OK = Answer(b'{"ok":true}')


@dataclass
class Backend:
    """A backend on loopback that remembers what it was asked and answers as it is told."""

    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    answer: Callable[[Asked], Answer] = field(default=lambda asked: OK)

    def connected(self) -> None:
        """Count a connection."""
        self.connections += 1

    def take(self, asked: Asked) -> Answer:
        """Remember a request, and answer it."""
        self.asked.append(asked)
        return self.answer(asked)


@contextmanager
def remembering() -> Iterator[Backend]:
    """A backend, until the block ends."""
    made = Backend()
    with answering(made.take, connected=made.connected) as made.port:
        yield made


@dataclass
class Target:
    """A running registry, and the operator and agents that use it."""

    running: RegistryProcess
    http: httpx.Client
    seq: int = 0
    credentials_epoch: int = 0
    _tokens: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The agents' listener."""
        return self.running.url

    def auth(self, account: str = "team/bot") -> dict[str, str]:
        """Headers of a service account, `namespace/name`."""
        if account not in self._tokens:
            self._tokens[account] = mint("system:serviceaccount:" + account.replace("/", ":"))
        return {"Authorization": f"Bearer {self._tokens[account]}"}

    def admin(self, path: str, content: str) -> None:
        """Send something as the operator does."""
        token = mint(OPERATOR, audience="toolcrib-admin")
        answer = self.http.post(
            f"{self.running.admin_url}{path}",
            headers={"Authorization": f"Bearer {token}", **JSON},
            content=content,
        )
        if answer.status_code != 200:
            raise RuntimeError(f"the stage is broken: {path} answered {answer.text}")

    def publish(self, tools: Sequence[PublishedTool], bindings: Sequence[PublishedBinding]) -> None:
        """Publish a whole world."""
        self.seq += 1
        full = Publish(to=Revision(epoch=1, seq=self.seq), tools=tuple(tools), bindings=tuple(bindings))
        self.admin("/v1/admin/publish", full.model_dump_json(by_alias=True))

    def step(self, tools: Sequence[PublishedTool], removed: Sequence[str] = ()) -> None:
        """Publish some tools more, or take some away by their ids."""
        before = Revision(epoch=1, seq=self.seq)
        self.seq += 1
        step = Publish(
            base=before,
            to=Revision(epoch=1, seq=self.seq),
            tools=tuple(tools),
            removed=Removed(tools=tuple(removed)),
        )
        self.admin("/v1/admin/publish", step.model_dump_json(by_alias=True))

    def push(self, *credentials: Credential) -> None:
        """Replace all credentials."""
        self.admin("/v1/admin/credentials", Credentials(epoch=1, credentials=credentials).model_dump_json())

    def call(self, tool: str, arguments: Any, account: str = "team/bot") -> httpx.Response:
        """Call a tool by name or id."""
        return self.http.post(
            f"{self.url}/v1/call", headers=self.auth(account), json={"tool": tool, "arguments": arguments}
        )

    def describe(self, tool: str, account: str = "team/bot") -> httpx.Response:
        """What a name means."""
        return self.http.post(f"{self.url}/v1/describe", headers=self.auth(account), json={"tool": tool})

    def metrics(self) -> str:
        """What a scrape says now."""
        answer = self.http.get(f"{self.running.metrics_url}/metrics")
        hold("the metrics port answers", answer.status_code == 200, status=answer.status_code)
        return answer.text

    def number(self, series: str) -> float:
        """The value of one series now; 0 where it is not there yet."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.metrics(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def held(self) -> float:
        """How often the product's own watchdog found the event loop held, by anything that is not known to."""
        known = held_loops.known()
        found = re.findall(
            r'^toolcrib_loop_held_total\{place="([^"]+)"\} (\S+)$', self.metrics(), re.MULTILINE
        )
        return sum(float(count) for place, count in found if place not in known)

    def said_held(self) -> list[str]:
        """The last log lines of held loops."""
        return [json.dumps(line) for line in self.running.lines if held_loops.SAID in json.dumps(line)][-2:]


class Stage:
    """Starts each target when an attack first asks for it, and ends all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, ExitStack()
        self._targets: dict[str, Target] = {}
        self._backend: Backend | None = None
        self._starting: Future[Admission] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._starting is not None:
            wait([self._starting])
        for target in self._targets.values():
            target.running.child.terminate()  # all at the same time, not one after the other
        self._stack.close()

    @property
    def backend(self) -> Backend:
        """The backend behind every Service `svc` of `NAMESPACES`."""
        if self._backend is None:
            self._backend = self._stack.enter_context(remembering())
        return self._backend

    def begin(self) -> None:
        """Start the API server beside what is attacked until it is needed."""
        if self._starting is None:
            for program in ("kube-apiserver", "etcd", "kubectl"):
                lookup.path_of(program)  # says what is missing
            pool = ThreadPoolExecutor(1)
            self._starting = pool.submit(self._start)
            pool.shutdown(wait=False)

    def _start(self) -> Admission:
        server = admission_server([f"--service-cluster-ip-range={SERVICE_RANGE}"])
        started = self._stack.enter_context(server)
        roles = started.server.kubectl("apply", "-f", str(ROOT / "examples/cluster/rbac.yaml"))
        if roles.returncode:
            raise RuntimeError(f"the stage is broken: {roles.stderr}")
        started.settle()
        return started

    @property
    def admission(self) -> Admission:
        """A real API server with the definitions and the admission policies in force."""
        self.begin()
        assert self._starting is not None
        return self._starting.result()

    def target(self, name: str = "registry", within: Sequence[str] = (), **changes: Any) -> Target:
        """A registry of these settings; the same name gives the same one."""
        if name not in self._targets:
            services = {f"{namespace}/svc": f"127.0.0.1:{self.backend.port}" for namespace in NAMESPACES}
            config = configuration(self._folder / name, **{"backends": services, **changes})
            running = self._stack.enter_context(process(config, within=within))
            client = self._stack.enter_context(httpx.Client(timeout=60, trust_env=False))
            self._targets[name] = Target(running, client)
        return self._targets[name]

    @contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        """A folder for one attack."""
        made = self._folder / name
        made.mkdir(exist_ok=True)
        yield made


def service(namespace: str, path: str, **fields: Any) -> PublishedBackend:
    """The backend of the stage, as a Service of this namespace."""
    return PublishedBackend(
        service_namespace=namespace, service_name="svc", service_port=80, path=path, **fields
    )


def text(draw: random.Random, alphabet: str, least: int, most: int) -> str:
    """A random text."""
    return "".join(draw.choice(alphabet) for _ in range(draw.randint(least, most)))


def code_of(answer: httpx.Response) -> str:
    """The problem's code; empty where it is no problem."""
    try:
        document = json.loads(answer.text)
    except ValueError:
        return ""
    return str(document.get("code", "")) if isinstance(document, dict) else ""
