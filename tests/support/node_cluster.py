"""Toolcrib on a real node, installed by helm from the chart; what the end-to-end tests do with it.

Requests are made from the host to the registry's ClusterIP, verified by the Service's name and the chart's own
authority. Identities are service accounts; tokens are the API server's.
"""

import base64
import functools
import json
import ssl
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import yaml

import held_loops
from node_release import AGENTS, RELEASE, SYSTEM, Usage, agent_binding, condition, values
from realparts import lookup
from realparts.node import Node

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "toolcrib"
EXAMPLES = ROOT / "examples"
IMAGES = ("pause", "weaviate", "toolcrib")


class NodeCluster:
    """The release `toolcrib` in `toolcrib-system` of a node, with the heist's manifests and their tools."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._helm = str(lookup.path_of("helm"))
        self.values = values()

    # ---- helm ----

    def helm(self, *arguments: str, timeout: float = 300) -> str:
        """What helm printed. Raises AssertionError with what it said, and the state of the pods, if it failed."""
        done = self.node.try_run(self._helm, *arguments, timeout=timeout)
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr}{done.stdout}\n{self.state()}"
        return done.stdout

    def install(self, *more: str, chart: Path = CHART, wait: bool = True) -> str:
        """`helm upgrade --install` with the values of this node; `more` options come last."""
        file = self.node.folder / "values.json"
        file.write_text(json.dumps(self.values))
        # the chart makes a Role and a ConfigMap in each
        self.node.kubectl("apply", "-f", str(EXAMPLES / "heist" / "00-namespace.yaml"))
        self.node.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": AGENTS}})
        waiting = ["--wait", "--timeout", "240s"] if wait else []
        return self.helm(
            "upgrade", "--install", RELEASE, str(chart), "--namespace", SYSTEM, "--create-namespace",
            "--values", str(file), *waiting, *more,
        )  # fmt: skip

    def uninstall(self) -> str:
        """`helm uninstall --wait`, and wait for the last pod."""
        said = self.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", "--timeout", "240s")
        # the cluster ends the pods of the release's Agents once those are gone
        for namespace in (SYSTEM, AGENTS):
            self.node.until(functools.partial(self._is_empty, namespace), timeout=240, interval=0.5)
        return said

    def _is_empty(self, namespace: str) -> bool:
        return not self.node.get("pods", "-n", namespace)["items"]

    def apply_heist(self) -> None:
        """The example's manifests, and its tools as pods; the release's own agent may calculate and simulate."""
        self.node.kubectl("apply", "-f", str(EXAMPLES / "heist"))
        self.apply_tools()
        self.node.apply(agent_binding("calculator:use", "simulation:read"))

    def apply_tools(self, *, verified: bool = True) -> None:
        """The program behind the heist's tools; not `verified`, it takes calls without an assertion."""
        manifest = (EXAMPLES / "cluster" / "example-tools.yaml").read_text()
        objects = list(yaml.safe_load_all(manifest.replace("toolcrib:0.1.0", "toolcrib:test")))
        if not verified:
            (container,) = objects[0]["spec"]["template"]["spec"]["containers"]
            container["args"] = ["example-tools", "--host=0.0.0.0", "--port=8080", "--unverified"]
        self.node.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))

    def apply_crew(self) -> None:
        """The heist's Agents, each with `run`, and the script in the place of their model."""
        manifest = (EXAMPLES / "cluster" / "heist-agents.yaml").read_text()
        self.node.kubectl("apply", "-f", "-", input=manifest.replace("toolcrib:0.1.0", "toolcrib:test"))

    def agent(self, name: str, namespace: str = AGENTS) -> dict[str, Any]:
        """An Agent."""
        found: dict[str, Any] = self.node.get("agents.toolcrib.dev", name, "-n", namespace)
        return found

    def agent_pods(self, name: str, namespace: str = AGENTS) -> list[dict[str, Any]]:
        """The pods that the operator runs for an Agent, ended ones too."""
        label = f"app.kubernetes.io/managed-by=toolcrib-operator,toolcrib.dev/agent={name}"
        found: list[dict[str, Any]] = self.node.get("pods", "-n", namespace, "-l", label)["items"]
        return found

    def running_agents(self) -> list[dict[str, Any]]:
        """The pods of all Agents, without those that have ended."""
        items = self.node.get("pods", "-A", "-l", "app.kubernetes.io/managed-by=toolcrib-operator")["items"]
        return [pod for pod in items if pod["status"]["phase"] not in ("Succeeded", "Failed")]

    def agent_pod(self, name: str, namespace: str = AGENTS) -> dict[str, Any]:
        """The one pod of an Agent, once it is Ready: it has discovered."""
        found: list[dict[str, Any]] = []

        def ready() -> bool:
            found[:] = [
                pod for pod in self.agent_pods(name, namespace) if "deletionTimestamp" not in pod["metadata"]
            ]
            return len(found) == 1 and condition(found[0], "Ready") == "True"

        self.node.until(ready, timeout=120, interval=0.3)
        return found[0]

    def create_catalog(self) -> int:
        """The catalog's tools, eight at a time, with their namespace and grants; how many tools the cluster has then."""
        folder = EXAMPLES / "catalog"
        self.node.kubectl(
            "apply", "-f", str(folder / "00-namespace.yaml"), "-f", str(folder / "bindings.yaml")
        )
        objects = [
            tool
            for file in sorted((folder / "tools").glob("*.yaml"))
            for tool in yaml.load_all(file.read_bytes(), Loader=yaml.CSafeLoader)
        ]
        with self.node.client() as client, ThreadPoolExecutor(8) as pool:
            path = "/apis/toolcrib.dev/v1alpha1/namespaces/catalog/tools"
            for answer in pool.map(lambda tool: client.post(path, json=tool), objects):
                answer.raise_for_status()
        return len(self.node.get("tools.toolcrib.dev", "-A")["items"])

    # ---- the registry, as an agent on the network sees it ----

    @property
    def tls(self) -> bool:
        return bool(self.values.get("tls", {}).get("mode") != "off")

    @cached_property
    def ca_file(self) -> Path:
        """The chart's authority, in a file."""
        config = self.node.get("configmap", f"{RELEASE}-ca", "-n", SYSTEM)
        path = self.node.folder / "registry-ca.crt"
        path.write_text(config["data"]["ca.crt"])
        return path

    def forget_address(self) -> None:
        """The release was installed anew: it has another authority."""
        self.__dict__.pop("ca_file", None)

    @property
    def address(self) -> str:
        """The ClusterIP of the agents' Service."""
        return str(self.node.get("service", f"{RELEASE}-registry", "-n", SYSTEM)["spec"]["clusterIP"])

    @property
    def url(self) -> str:
        """The registry by the name it has in the cluster."""
        return f"{'https' if self.tls else 'http'}://{RELEASE}-registry.{SYSTEM}.svc"

    def request(
        self, method: str, path: str, token: str, body: Any = None, timeout: float = 60
    ) -> httpx.Response:
        """One request to the ClusterIP on a connection of its own."""
        name = httpx.URL(self.url).host
        verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=self.ca_file) if self.tls else False
        url = self.url.replace(name, self.address) + path
        with httpx.Client(verify=verify, trust_env=False, timeout=timeout) as client:
            return client.request(
                method,
                url,
                json=body,
                headers={"Host": name, "Authorization": f"Bearer {token}"},
                extensions={"sni_hostname": name},
            )

    def token(self, namespace: str, name: str) -> str:
        """A token for the registry's audience."""
        made = self.node.kubectl(
            "create", "token", name, "-n", namespace, "--audience", "toolcrib", "--duration", "2h"
        )
        return made.strip()

    def discover(self, token: str) -> list[str]:
        """The names that `GET /` lists; empty while nothing answers."""
        try:
            answer = self.request("GET", "/", token, timeout=15)
        except httpx.TransportError:
            return []
        return sorted(t["name"] for t in answer.json()["tools"]) if answer.is_success else []

    def call(self, token: str, tool: str, arguments: Mapping[str, Any]) -> httpx.Response:
        """`POST /tools/NAME`."""
        return self.request("POST", f"/tools/{tool}", token, dict(arguments))

    def search(self, token: str, query: str) -> dict[str, Any]:
        """`POST /v1/search`."""
        answer = self.request("POST", "/v1/search", token, {"query": query, "limit": 5})
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def search_by_meaning(self, token: str, query: str) -> dict[str, Any]:
        """`search`, once it is hybrid: a busy machine may be too slow for the embedder, and gets words alone."""
        found: dict[str, Any] = {}

        def hybrid() -> bool:
            found.update(self.search(token, query))
            return bool(found["search_mode"] == "hybrid")

        self.node.until(hybrid, timeout=60, interval=0.3)
        return found

    # ---- its Weaviate ----

    def weaviate_secret(self) -> str:
        """The name of the Secret with the API key, as the registry's pods mount it."""
        spec = self.node.get("deployment", f"{RELEASE}-registry", "-n", SYSTEM)["spec"]["template"]["spec"]
        volume = next(volume for volume in spec["volumes"] if volume["name"] == "weaviate")
        return str(next(s["secret"]["name"] for s in volume["projected"]["sources"] if "secret" in s))

    def indexed(self) -> int:
        """How many tools Weaviate holds, asked of itself; 0 while it does not answer."""
        pods = self.pods("weaviate")
        secret = self.node.get("secret", self.weaviate_secret(), "-n", SYSTEM)
        key = base64.b64decode(secret["data"]["api-key"]).decode()
        url = f"{'https' if self.tls else 'http'}://{pods[0]['status'].get('podIP')}:8080/v1"
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(verify=False, trust_env=False, timeout=30, headers=headers) as client:
            try:
                classes = [
                    c["class"] for c in client.get(f"{url}/schema").raise_for_status().json()["classes"]
                ]
                counts = [
                    client.post(f"{url}/graphql", json={"query": f"{{Aggregate{{{name}{{meta{{count}}}}}}}}"})
                    .raise_for_status()
                    .json()["data"]["Aggregate"][name][0]["meta"]["count"]
                    for name in classes
                ]
            except (
                httpx.HTTPError,
                KeyError,
                IndexError,
                TypeError,
            ):  # a class that it does not answer for yet is null
                return 0
        return max(counts, default=0)

    def wipe_weaviate(self) -> None:
        """Stop it, empty its volume, start it; it is Ready when this returns."""
        pod = self.pods("weaviate")[0]
        claims = [
            v["persistentVolumeClaim"]["claimName"]
            for v in pod["spec"]["volumes"]
            if "persistentVolumeClaim" in v
        ]
        volume = self.node.get("pvc", claims[0], "-n", SYSTEM)["spec"]["volumeName"]
        self.scale_weaviate(0)
        self.node.wipe_volume(volume)
        self.scale_weaviate(1)

    def scale_weaviate(self, to: int) -> None:
        """Take it away (0) or bring it back (1)."""
        self.node.kubectl("scale", f"statefulset/{RELEASE}-weaviate", "-n", SYSTEM, f"--replicas={to}")
        if to:
            self.wait_ready("weaviate")
        else:
            self.node.until(lambda: not self.pods("weaviate", ending=True), timeout=240, interval=0.3)

    # ---- its pods ----

    def pods(self, component: str = "", *, ending: bool = False) -> list[dict[str, Any]]:
        """The release's pods, of one component or all, without those that have ended or (`ending`) are about to."""
        items = self.node.get("pods", "-n", SYSTEM, "-l", _selector(component))["items"]
        return [
            pod
            for pod in items
            if pod["status"]["phase"] not in ("Succeeded", "Failed")
            and (ending or "deletionTimestamp" not in pod["metadata"])
        ]

    def ready(self, component: str = "", *, but: Iterable[str] = ()) -> bool:
        """Whether every pod that is wanted is Ready, and none of those named is left."""
        pods = self.pods(component)
        return (
            bool(pods)
            and not {pod["metadata"]["name"] for pod in self.pods(component, ending=True)} & set(but)
            and all(condition(pod, "Ready") == "True" for pod in pods)
            and all(
                item["status"].get("readyReplicas", 0) == item["spec"]["replicas"]
                for item in self._workloads(component)
            )
        )

    def _workloads(self, component: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.node.get(
            "deployments,statefulsets", "-n", SYSTEM, "-l", _selector(component)
        )["items"]
        return items

    def wait_ready(self, component: str = "", *, but: Iterable[str] = (), timeout: float = 240) -> float:
        """Wait for `ready`; how long it took (s). The error shows the state of the pods."""
        began = time.monotonic()
        gone = list(but)
        try:
            self.node.until(lambda: self.ready(component, but=gone), timeout=timeout, interval=0.3)
        except TimeoutError:
            raise AssertionError(f"not ready after {timeout:g} s\n{self.state()}") from None
        return time.monotonic() - began

    def wait_objects(self, namespace: str = "heist", timeout: float = 240) -> float:
        """Wait until every object of ours there is Ready, by its newest generation; how long it took (s)."""
        began = time.monotonic()

        def holds() -> bool:
            items = self.node.get("toolcrib", "-n", namespace)["items"]
            return bool(items) and all(condition(item, "Ready") == "True" for item in items)

        self.node.until(holds, timeout=timeout, interval=0.3)
        return time.monotonic() - began

    def restarts(self) -> dict[str, int]:
        """How often the containers of each pod were started again."""
        return {
            pod["metadata"]["name"]: sum(
                s["restartCount"] for s in pod["status"].get("containerStatuses", ())
            )
            for pod in self.pods()
        }

    def holder(self) -> str:
        """Who holds the Lease: one process of one pod; empty if none does."""
        return self.node.try_kubectl(
            "get", "lease", f"{RELEASE}-operator", "-n", SYSTEM, "-o", "jsonpath={.spec.holderIdentity}"
        ).stdout.strip()

    def leader(self) -> str:
        """The name of the pod that leads; empty if none does."""
        return self.holder().partition("_")[0]

    def state(self) -> str:
        """For errors: pods, their last events, and the ends of the logs of those not ready."""
        said = [self.node.try_kubectl("get", "pods", "-A", "-o", "wide").stdout]
        for pod in self.pods():
            if condition(pod, "Ready") != "True":
                name = pod["metadata"]["name"]
                said += [f"--- {name}", self.node.logs(name, SYSTEM, "--all-containers", "--tail", "12")]
        events = self.node.try_kubectl("get", "events", "-A", "--sort-by=.lastTimestamp").stdout.splitlines()
        return "\n".join([*said, *events[-12:]])

    def metrics(self, pod: Mapping[str, Any], port: int) -> str:
        """A pod's metrics, as Prometheus reads them."""
        scheme = "https" if self.tls and port == 8091 else "http"  # 8091: the registry's
        url = f"{scheme}://{pod['status']['podIP']}:{port}/metrics"
        return httpx.get(url, verify=False, trust_env=False, timeout=60).text

    def held_loops(self) -> list[str]:
        """What held the event loop of a registry or operator, of all pods there are, without what is known."""
        found = []
        for component, port in (("registry", 8091), ("operator", 8090)):
            for pod in self.pods(component):
                if condition(pod, "Ready") != "True":
                    continue  # its metrics cannot be read; it is looked at again at the end of the next module
                name = pod["metadata"]["name"]
                before = self.node.try_kubectl("logs", "-n", SYSTEM, name, "--previous").stdout.splitlines()
                lines = self.node.logs(name, SYSTEM).splitlines()
                held = [*held_loops.unknown(before), *held_loops.unknown_of(self.metrics(pod, port), lines)]
                found += [f"{name}: {line}" for line in held]
        return found

    def usage(self) -> dict[str, Usage]:
        """What each pod uses, by kubelet's last look (every 10 s or so)."""
        path = "/api/v1/nodes/crib/proxy/stats/summary?only_cpu_and_memory=true"
        found = {}
        for pod in json.loads(self.node.kubectl("get", "--raw", path))["pods"]:
            parts = [c for c in pod["containers"] if "cpu" in c and "memory" in c]
            if parts:
                found[pod["podRef"]["name"]] = Usage(
                    sum(c["memory"].get("workingSetBytes", 0) for c in parts) / 2**20,
                    sum(c["cpu"].get("usageCoreNanoSeconds", 0) for c in parts) / 1e9,
                    datetime.fromisoformat(parts[0]["cpu"]["time"]).timestamp(),
                )
        return found


def _selector(component: str) -> str:
    ours = f"app.kubernetes.io/instance={RELEASE}"
    return f"{ours},app.kubernetes.io/component={component}" if component else ours
