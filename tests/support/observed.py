"""A whole Toolcrib at work, scraped by a real Prometheus: what the dashboards are tried on.

Real processes: API server, two replicas of the registry (the second serves agents over TLS), an operator, the
example tools, an agent runner with a scripted model. `work` does a round of everything that the dashboards show:
calls that succeed, fail and are refused, searches, discoveries, an open stream, changes of manifests.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import yaml

from cluster import EXAMPLES, SYSTEM, Cluster, Replica
from manifests import manifest, service, tool
from realparts.pki import Authority
from realparts.processes import Child, clean_environment, free_port, listening, wait_until
from realparts.prometheus import Prometheus

RULES = EXAMPLES.parent / "helm" / "toolcrib" / "rules" / "recording.yaml"
READS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
EXPIRES = "2031-01-01T00:00:00Z"
"""Years away: shown as a grant with an end."""
ENDED = "2021-01-01T00:00:00Z"
SUSPENDED, ON_TRIAL, DOWN = "heist/suspect", "heist/calculator-words", "heist/away"
UNREACHED, DEAD, UNUSED, DENIED_ONCE = (
    "heist/orphan",
    "heist/simulation-data",
    "heist/lookout",
    "heist/newcomer",
)


def manifests(soon: str) -> list[dict[str, Any]]:
    """What is applied beside the heist; `soon` is the end of a grant, a date within a week."""
    return [
        _tool("orphan", ["nobody:use"], {"none": {}}),
        _tool("broken", ["broken:use"], _http("/no-such-path"), server="workshop"),
        _tool(
            "away", ["spare:use"], _http("/tools/calculator", "away"), annotations=READS, fallback=["spare"]
        ),
        _tool("spare", ["spare:use"], _http("/tools/calculator"), annotations=READS),
        service("away", clusterIP=None),
        manifest(
            "ToolCanary",
            ON_TRIAL.partition("/")[2],
            "heist",
            tool="calculator",
            share=50,
            candidate={"description": "Works out an arithmetic expression."},
        ),
        manifest("Agent", "suspect", "heist", suspended=True),
        _account("suspect"),
        _binding("suspect", "suspect", scopes=["calculator:use"]),
        _account("lookout"),
        _account("newcomer"),
        _account("stranger"),
        _binding("lookout", "lookout", scopes=["calculator:use"]),
        _binding("newcomer", "newcomer", scopes=["calculator:use"], expiresAt=soon),
        _binding("hacker-not-alarms", "hacker", tools={"deny": ["simulation_*"]}),
        _binding("hacker-spare", "hacker", scopes=["spare:use"]),
        _binding("hacker-workshop", "hacker", scopes=["broken:use"], expiresAt=EXPIRES),
        _binding("safecracker-last-year", "safecracker", scopes=["database:read"], expiresAt=ENDED),
    ]


def _tool(name: str, scopes: list[str], backend: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return tool(name, description=f"The tool {name}.", scopes=scopes, backend=backend, **spec)


def _http(path: str, service: str = "example-tools") -> dict[str, Any]:
    return {"http": {"service": {"name": service, "port": 8080}, "path": path, "method": "POST"}}


def _binding(name: str, account: str, **spec: Any) -> dict[str, Any]:
    subjects = [{"kind": "ServiceAccount", "name": account}]
    return manifest("AgentScopeBinding", name, "heist", subjects=subjects, **spec)


def _account(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "heist"}}


class Observed:
    """The cluster, the Prometheus that scrapes it, and the work. Made by `observed`."""

    def __init__(self, cluster: Cluster, prometheus: Prometheus) -> None:
        self.prometheus = prometheus
        self._cluster = cluster
        self._rounds = 0
        crew = ("safecracker", "hacker", "newcomer", "stranger", "suspect")
        self._tokens = {name: cluster.token("heist", name) for name in crew}
        self._http = httpx.Client(trust_env=False, timeout=30)

    def once(self) -> None:
        """What happens a single time: one denial of one agent."""
        self._call("newcomer", "file_reader", {"filename": "guard_schedule.txt"})

    def work(self) -> None:
        """One round of everything else."""
        self._rounds += 1
        self._call("safecracker", "calculator", {"expression": "6 * 7"})
        self._call("safecracker", "calculator", {"nonsense": True})
        self._call("safecracker", "database_query", {"query": "SELECT 1"})
        self._call("hacker", "file_reader", {"filename": "guard_schedule.txt"})
        self._call("hacker", "broken", {})
        self._call("hacker", "simulation_data", {})
        self._call("hacker", "away", {"expression": "6 * 7"})
        for who in ("stranger", "suspect"):
            self._call(who, "calculator", {"expression": "1"})
        for query in ("work out a percentage", "zzzz qqqq"):
            body = {"query": query, "limit": 5, "min_score": 0.2}
            self._post("safecracker", "/v1/search", body)
        for path in ("/", "/v1/tools"):
            self._http.get(self._cluster.url + path, headers=self._auth("safecracker"))
        self._http.get(self._cluster.url + "/v1/tools", headers={"Authorization": "Bearer not.a.token"})
        changed = _tool("orphan", ["nobody:use"], {"none": {}})
        changed["spec"]["description"] = f"The tool orphan, in its edition {self._rounds}."
        self._cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(changed))

    def drawn(self, expression: str, seconds: float, step: int) -> list[dict[str, Any]]:
        """The series that Prometheus answers for a graph of the last so many seconds, with `values` each.

        Raises AssertionError with what Prometheus says about an expression that it refuses.
        """
        end = time.time()
        asked: dict[str, str | float] = {
            "query": expression,
            "start": end - seconds,
            "end": end,
            "step": step,
        }
        answer = self._http.get(f"{self.prometheus.url}/api/v1/query_range", params=asked)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def watch(self, stop: threading.Event) -> None:
        """Hold a live stream open until told to stop."""
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.Client(trust_env=False, timeout=httpx.Timeout(5, read=1)) as client,
        ):
            while not stop.is_set():
                with (
                    contextlib.suppress(httpx.ReadTimeout),
                    client.stream(
                        "GET", self._cluster.url + "/v1/watch", headers=self._auth("safecracker")
                    ) as answer,
                ):
                    for _ in answer.iter_lines():
                        if stop.is_set():
                            return

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def _call(self, who: str, tool: str, arguments: dict[str, Any]) -> None:
        self._post(who, f"/tools/{tool}", arguments)

    def _post(self, who: str, path: str, body: dict[str, Any]) -> None:
        self._http.post(self._cluster.url + path, json=body, headers=self._auth(who))

    def _auth(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._tokens[who]}"}


@contextlib.contextmanager
def observed(soon: str) -> Iterator[Observed]:
    """Everything up, scraped once, and nothing done yet; all of it ends with the block."""
    with contextlib.ExitStack() as stack:
        quiet = {"embedder": {"kind": "none"}, "backends": {DOWN: f"127.0.0.1:{free_port()}"}}
        cluster = stack.enter_context(Cluster(replicas=0, operators=0, store="embedded", registry=quiet))
        cluster.replicas += [Replica(cluster, "registry-0"), SecureReplica(cluster, "registry-1")]
        # started side by side: most of the time is Python's imports
        for replica in cluster.replicas:
            replica.child.start()
            stack.callback(replica.child.kill)
        cluster.kubectl("apply", "-f", str(EXAMPLES / "heist"))
        cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests(soon)))
        stack.callback(cluster.add_operator().kill)
        newcomer = cluster.token("heist", "newcomer")
        wait_until(lambda: _discovers(cluster, newcomer), timeout=60, interval=0.3)
        metrics_port = _runner(cluster, stack)
        prometheus = stack.enter_context(Prometheus(config=_scrapes(cluster, metrics_port)))
        prometheus.wait_up()
        made = Observed(cluster, prometheus)
        stack.callback(made.close)
        stop = threading.Event()
        watcher = threading.Thread(target=made.watch, args=(stop,))
        watcher.start()
        stack.callback(watcher.join)
        stack.callback(stop.set)
        yield made


class SecureReplica(Replica):
    """A replica that serves agents over TLS."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        folder = cluster.folder / f"{name}-tls"
        folder.mkdir()
        Authority("toolcrib-test-ca", folder).issue("server", "registry", hosts=("localhost", "127.0.0.1"))
        super().__init__(cluster, name)
        config = cluster.folder / f"{name}.yaml"
        files = {"cert_file": str(folder / "server.crt"), "key_file": str(folder / "server.key")}
        config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"tls": files}))


def _runner(cluster: Cluster, stack: contextlib.ExitStack) -> int:
    """Start an agent with a scripted model; its metrics port."""
    token = cluster.folder / "runner-token"
    token.write_text(cluster.token("heist", "safecracker"))
    model_port, metrics_port = free_port(), free_port()
    scripted = [sys.executable, "-m", "toolcrib_runner.scripted", "--port", str(model_port)]
    runner = [
        sys.executable, "-m", "toolcrib_cli", "agent", "run", "--name", "safecracker", "--registry-url", cluster.url,
        "--token-file", str(token), "--model-url", f"http://127.0.0.1:{model_port}/v1", "--model", "toolcrib-scripted",
        "--task", 'call calculator {"expression": "6 * 7"}', "--metrics-port", str(metrics_port), "--keep-serving",
    ]  # fmt: skip
    for name, argv in (("model", scripted), ("runner", runner)):
        child = Child(name, argv, log=cluster.folder / f"{name}.log", env=clean_environment({})).start()
        stack.callback(child.kill)
        child.wait_ready(lambda: listening(model_port), timeout=60)
    return metrics_port


def _discovers(cluster: Cluster, token: str) -> bool:
    # neither there nor ready: no answer, or a problem without tools
    with contextlib.suppress(httpx.TransportError, KeyError):
        return cluster.discover(token) == ["calculator"]
    return False


def _scrapes(cluster: Cluster, runner_port: int) -> dict[str, Any]:
    """Targets with the labels that they have in a cluster."""
    jobs: dict[str, list[tuple[str, str]]] = {
        "registry": [(r.name, r.metrics_url) for r in cluster.replicas],
        "operator": [(o.name, o.url) for o in cluster.operators],  # type: ignore[attr-defined]
        "agents": [("safecracker-0", f"http://127.0.0.1:{runner_port}")],
    }
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [
                    {"targets": [url.removeprefix("http://")], "labels": {"namespace": SYSTEM, "pod": pod}}
                    for pod, url in targets
                ],
            }
            for job, targets in jobs.items()
        ],
    }
