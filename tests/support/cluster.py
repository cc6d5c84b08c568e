"""A whole Toolcrib on loopback, each part a process of its own: API server, Weaviate, registry, operator, tools.

Used by the end-to-end tests, by `make cluster-demo` and by the benchmarks. Identities are real service-account tokens
of the API server, verified through its key set; the operator has exactly the rights of examples/cluster/rbac.yaml.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from realparts.apiserver import TOOLCRIB_KINDS, ApiServer
from realparts.processes import Child, clean_environment, free_port, free_ports, wait_until
from realparts.weaviate import Weaviate
from toolcrib_registry.calls.assertions.keys import make_private

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"
EXAMPLES = ROOT / "examples"
SYSTEM = "toolcrib-system"
PUBLIC_URL = "https://toolcrib.test"
"""`iss` of all replicas' call assertions."""
UNPROVEN = ("--prove-after", "300")
"""Options of an operator that learns by its watches alone: a list of what is silent would hide one that is dead."""


class Replica:
    """One registry process: `url` for agents, `admin_url` for the operator, `metrics_url` for Prometheus."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        ports = free_ports(3)
        if name == "registry-0":  # where the example tools fetch the keys of assertions
            ports[0] = cluster.first_port
        self.url, self.admin_url, self.metrics_url = (f"http://127.0.0.1:{port}" for port in ports)
        config = cluster.folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(cluster.registry_config(name, *ports)))
        argv = [sys.executable, "-m", "toolcrib_registry.main", "--config", str(config)]
        self.child = Child(name, argv, log=cluster.folder / f"{name}.log", env=clean_environment({}))

    def start(self) -> None:
        """Start it and wait until it answers (it is ready only after a publish)."""
        self.child.start()
        self.child.wait_ready(lambda: _answers(f"{self.url}/health"), timeout=120)

    def close(self) -> None:
        """Stop it, and what belongs to it."""
        self.child.stop()

    def metrics(self) -> str:
        """Its metrics, as Prometheus reads them."""
        return httpx.get(f"{self.metrics_url}/metrics", trust_env=False, verify=False, timeout=60).text


class Cluster:
    """Everything, started by `with`; what it started ends with it.

    Args:
        replicas: registry processes.
        operators: operator processes; one leads.
        say: told what is being started.
        store: weaviate, or embedded for benchmarks without one.
        embedder: packaged or none.
        operator_flags: more of the operator's options.
        registry: settings of the replicas that differ from `registry_config`; `backends` are added to its own.
        further: makers of more replicas, which come after the others.
        open_tools: the example tools take calls from anybody: those of a registered URL carry no assertion.
    """

    def __init__(
        self,
        *,
        replicas: int = 1,
        operators: int = 1,
        say: Callable[[str], None] = lambda text: None,
        store: str = "weaviate",
        embedder: str = "packaged",
        operator_flags: Sequence[str] = (),
        registry: Mapping[str, Any] | None = None,
        further: Sequence[Callable[[Cluster, str], Replica]] = (),
        open_tools: bool = False,
    ) -> None:
        self._say = say
        self._further = tuple(further)
        self._store, self._embedder = store, embedder
        self._open_tools = open_tools
        self._operator_flags = tuple(operator_flags)
        self._registry = dict(registry or {})
        self._stack = contextlib.ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="toolcrib-cluster-")))
        self.api = ApiServer()
        self.weaviate = Weaviate() if store == "weaviate" else None
        self.tools_port, self.first_port = free_ports(2)
        self._wanted = (replicas, operators)
        self.replicas: list[Replica] = []
        self.operators: list[Child] = []

    def __enter__(self) -> Self:
        try:
            return self._start()
        except BaseException:
            self._stack.close()
            raise

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start(self) -> Self:
        self._say("API server and etcd")
        self._stack.enter_context(self.api)
        if self.weaviate is not None:
            self._say("Weaviate")
            self._stack.enter_context(self.weaviate)
        self.kubectl("apply", "-f", str(CRDS), "-f", str(EXAMPLES / "cluster" / "rbac.yaml"))
        kinds = [f.stem for f in sorted(CRDS.glob("*.yaml")) if not f.stem.startswith("admission")]
        names = [f"crd/{kind}.toolcrib.dev" for kind in kinds]
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
        self._write_tokens()
        make_private(self.folder / "assertion")
        self._start_tools()
        for i in range(self._wanted[0]):
            self._say(f"registry replica {i}")
            self.add_replica()
        for make in self._further:
            self._say(f"registry replica {len(self.replicas)}")
            self.add_replica(make)
        for _ in range(self._wanted[1]):
            self._say("operator")
            self.add_operator()
        return self

    def _start_tools(self) -> None:
        """The program behind the example tools: it takes calls from these replicas alone, unless told otherwise."""
        self._say("example tools")
        keys = f"http://127.0.0.1:{self.first_port}/.well-known/jwks.json"
        callers = ["--unverified"] if self._open_tools else ["--issuer", PUBLIC_URL, "--jwks-url", keys]
        argv = [
            sys.executable, "-m", "toolcrib_cli", "example-tools", "--port", str(self.tools_port), *callers,
        ]  # fmt: skip
        tools = Child("example-tools", argv, log=self.folder / "example-tools.log", env=clean_environment({}))
        self._stack.enter_context(tools)
        tools.wait_ready(lambda: _answers(f"http://127.0.0.1:{self.tools_port}/healthz"), timeout=120)

    def add_replica(self, make: Callable[[Cluster, str], Replica] | None = None) -> Replica:
        """One more registry process; operators that run already do not know of it."""
        replica = (make or Replica)(self, f"registry-{len(self.replicas)}")
        self._stack.callback(replica.close)
        replica.start()
        self.replicas.append(replica)
        return replica

    def add_operator(self) -> Child:
        """One more operator process, with the rights of rbac.yaml and nothing else."""
        name = f"operator-{len(self.operators)}"
        kubeconfig = self.api.kubeconfig_for((self.folder / "operator-token").read_text())
        urls = [flag for r in self.replicas for flag in ("--registry-url", r.admin_url)]
        port = free_port()
        argv = [
            sys.executable, "-m", "toolcrib_operator.main", *urls, "--kubeconfig", str(kubeconfig),
            "--token-file", str(self.folder / "admin-token"), "--port", str(port), "--identity", name,
            *self._operator_flags,
        ]  # fmt: skip
        child = Child(name, argv, log=self.folder / f"{name}.log", env=clean_environment({}))
        self._stack.callback(child.stop)
        child.start()
        child.wait_ready(lambda: _answers(f"http://127.0.0.1:{port}/healthz"), timeout=120)
        child.url = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
        self.operators.append(child)
        return child

    def _write_tokens(self) -> None:
        operator, registry = ("toolcrib-operator", "toolcrib-registry")
        for file, account, audiences in (
            ("operator-token", operator, None),
            ("admin-token", operator, ["toolcrib-admin"]),
            ("registry-token", registry, None),
        ):
            path = self.folder / file
            path.write_text(self.api.token_request(SYSTEM, account, audiences, 7200))
            path.chmod(0o600)

    def registry_config(self, name: str, port: int, admin_port: int, metrics_port: int) -> dict[str, Any]:
        """What a replica's configuration file says."""
        store: dict[str, Any] = {"kind": "embedded", "path": str(self.folder / f"{name}-data")}
        if self.weaviate is not None:
            http, grpc = self.weaviate.http_port, self.weaviate.grpc_port
            store = {"kind": "weaviate", "host": "127.0.0.1", "http_port": http, "grpc_port": grpc}
        place = f"127.0.0.1:{self.tools_port}"
        return {
            "replica": name,
            "port": port,
            "public_port": port,
            "admin_port": admin_port,
            "metrics": {"port": metrics_port},
            "issuers": [
                {
                    "issuer": self.api.issuer,
                    "audience": ["toolcrib"],
                    "jwks_uri": self.api.jwks_url,
                    "ca_file": str(self.api.ca_file),
                    "token_file": str(self.folder / "registry-token"),
                    "scopes": "bindings",
                    "cluster": True,
                }
            ],
            "admin_subjects": [f"system:serviceaccount:{SYSTEM}:toolcrib-operator"],
            "store": store,
            "embedder": {"kind": self._embedder},
            "assertion": {"issuer": PUBLIC_URL, "keys": str(self.folder / "assertion")},
            "decision_log": str(self.folder / f"{name}-decisions.jsonl"),
            **self._registry,
            "backends": {
                "heist/example-tools": place,
                "catalog/example-tools": place,
                **self._registry.get("backends", {}),
            },
        }

    @property
    def url(self) -> str:
        """Where agents reach the first replica."""
        return self.replicas[0].url

    def kubectl(self, *arguments: str, check: bool = True, **kwargs: Any) -> str:
        """What the real kubectl prints.

        Raises:
            AssertionError: it failed, with what it said.
        """
        done = self.api.kubectl(*arguments, **kwargs)
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout + ("" if check else done.stderr)

    def token(self, namespace: str, name: str) -> str:
        """A real service-account token for the registry's audience."""
        return self.api.token_request(namespace, name, ["toolcrib"], 3600)

    def wait_ready(self, kind: str, namespace: str | None = None, timeout: float = 120) -> None:
        """Wait until every object of a kind (a plural, or toolcrib: of all of ours) is Ready."""
        kinds = TOOLCRIB_KINDS if kind == "toolcrib" else (kind,)

        def ready() -> bool:
            items = [
                i for each in kinds for i in self.api.read(each, namespace=_of(each, namespace))["items"]
            ]
            return bool(items) and all(_condition(i, "Ready") == "True" for i in items)

        wait_until(ready, timeout=timeout, interval=0.2)

    def discover(self, token: str, replica: int = 0) -> list[str]:
        """The names that `GET /` lists."""
        answer = httpx.get(
            self.replicas[replica].url + "/",
            headers=_bearer(token),
            trust_env=False,
            verify=False,
            timeout=60,
        )
        return sorted(t["name"] for t in answer.json()["tools"])

    def call(self, token: str, tool: str, arguments: dict[str, Any], replica: int = 0) -> httpx.Response:
        """`POST /tools/NAME`."""
        url = f"{self.replicas[replica].url}/tools/{tool}"
        return httpx.post(
            url, json=arguments, headers=_bearer(token), trust_env=False, verify=False, timeout=60
        )

    def search(self, token: str, query: str, replica: int = 0) -> dict[str, Any]:
        """`POST /v1/search`."""
        url = f"{self.replicas[replica].url}/v1/search"
        answer: dict[str, Any] = httpx.post(
            url,
            json={"query": query, "limit": 5},
            headers=_bearer(token),
            trust_env=False,
            verify=False,
            timeout=60,
        ).json()
        return answer

    def leader(self) -> str:
        """The identity that holds the Lease."""
        lease = self.api.read("leases", "toolcrib-operator", SYSTEM)
        return str(lease["spec"].get("holderIdentity", ""))


def _of(kind: str, namespace: str | None) -> str:
    """The namespace, for a kind that has one."""
    return "" if namespace is None or kind.startswith("cluster") else namespace


def counter(metrics: str, name: str, **labels: str) -> float:
    """The value of the series with at least these labels; 0 where there is none."""
    total = 0.0
    for line in metrics.splitlines():
        found = re.match(rf"{name}(?:\{{(.*)\}})? (\S+)$", line)
        if found and all(f'{k}="{v}"' in (found.group(1) or "") for k, v in labels.items()):
            total += float(found.group(2))
    return total


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _condition(item: dict[str, Any], kind: str) -> str:
    found = [c["status"] for c in item.get("status", {}).get("conditions", ()) if c["type"] == kind]
    generation = item["metadata"].get("generation")
    current = item.get("status", {}).get("observedGeneration") == generation
    return str(found[0]) if found and current else "Unknown"


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url, trust_env=False, verify=False, timeout=10).status_code == 200
    return False
