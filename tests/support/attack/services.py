"""C. Services behind Tools, on a real API server: an operator publishes those that their selector alone leads, no others.

The operator is a process with the rights of its role. It publishes to a replica that shows what it was sent, and to a
registry with addresses that are forbidden.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from ipaddress import IPv4Network, ip_address
from typing import Any

from admission_server import Admission
from attack.stage import SERVICE_RANGE, Stage, Target, code_of, hold
from manifests import binding, tool
from operator_harness import HttpReplica
from operator_process import OperatorProcess, running
from realparts.processes import wait_until
from registry_harness import OPERATOR, mint

SPACE, ELSEWHERE = "svc", "svc-other"
PORT = 8080
ROUND = 30
"""Tools in one round."""
SETTLED = 60.0
"""Seconds in which a round's Services are known everywhere: a bound for a busy machine."""
DIALLED = 4
"""Calls of a round that are really dialled: each waits for its timeout."""
_HALVES = list(IPv4Network(SERVICE_RANGE).subnets(1))
CLUSTER = str(_HALVES[0])
FORBIDDEN = str(list(_HALVES[0].subnets(2))[1])
_PLACES = {
    "Service": "/api/v1/namespaces/{}/services",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "Tool": "/apis/toolcrib.dev/v1alpha1/namespaces/{}/tools",
    "AgentScopeBinding": "/apis/toolcrib.dev/v1alpha1/namespaces/{}/agentscopebindings",
}
_MANAGER = "endpointslice-controller.k8s.io"


@dataclass
class Case:
    """A Tool, and what stands behind it: at most one Service of its name in its namespace, and EndpointSlices."""

    name: str
    twist: str
    service: dict[str, Any] | None
    slices: list[dict[str, Any]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)

    @property
    def expected(self) -> str:
        """`refused`, `missing` or `used`: what the issue says of such a Service."""
        if self.service is None:
            return "missing"
        spec = self.service["spec"]
        leads = spec.get("type", "ClusterIP") != "ExternalName" and spec.get("clusterIP") != "None"
        if not leads or not spec.get("selector") or not all(map(self._own, self.slices)):
            return "refused"
        ports = [p["port"] for p in spec["ports"] if p.get("protocol", "TCP") == "TCP"]
        return "used" if PORT in ports else "missing"

    def _own(self, made: dict[str, Any]) -> bool:
        """Whether the controller of EndpointSlices made it for this Service, of Pods of the namespace."""
        meta = made["metadata"]
        owners = [(o["kind"], o["name"]) for o in meta.get("ownerReferences", []) if o.get("controller")]
        pods = [e.get("targetRef", {}) for e in made["endpoints"]]
        return (
            meta["labels"].get("endpointslice.kubernetes.io/managed-by") == _MANAGER
            and ("Service", self.name) in owners
            and all(p.get("kind") == "Pod" and p.get("namespace") == SPACE for p in pods)
        )


def attack(stage: Stage, draw: random.Random, count: int) -> int:
    """Rounds of Services behind the same Tools: each time what stood there before is gone, and something else is there."""
    admission = stage.admission
    server = admission.server
    server.purge()
    target = stage.target("services", backends={}, egress={"cluster": [CLUSTER], "forbidden": [FORBIDDEN]})
    size = min(ROUND, count)
    names = [f"t{number}" for number in range(size)]
    for namespace in (SPACE, ELSEWHERE):
        server.create_namespace(namespace)
    account = server.client.post(
        f"/api/v1/namespaces/{SPACE}/serviceaccounts", json={"metadata": {"name": "bot"}}
    )
    known: dict[str, Any] = {"name": "bot", "uid": account.json()["metadata"]["uid"]}
    claims: Any = {"kubernetes.io": {"namespace": SPACE, "serviceaccount": known}}
    token = mint(f"system:serviceaccount:{SPACE}:bot", **claims)
    caller = {"Authorization": f"Bearer {token}"}
    _create(admission, [*map(_tool, names), binding("bot", ["s:use"], SPACE)])
    done = 0
    with stage.folder("operator") as folder, HttpReplica() as replica:
        (folder / "token").write_text(mint(OPERATOR, audience="toolcrib-admin"))
        kubeconfig = server.kubeconfig_for(server.token_request("toolcrib-system", "toolcrib-operator"))
        urls = [replica.url, target.running.admin_url]
        operator = OperatorProcess(kubeconfig, urls, folder, "--token-file", str(folder / "token"))
        with running(operator):
            while done < count:
                cases = [_case(draw, name) for name in names]
                _round(admission, target, replica, caller, cases)
                done += len(cases)
    return done


def _round(
    admission: Admission, target: Target, replica: HttpReplica, caller: dict[str, str], cases: list[Case]
) -> None:
    _clear(admission)
    objects = [o for c in cases for o in ([c.service] if c.service else []) + c.slices + c.others]
    # addresses that are asked for come before those that the API server chooses
    _create(admission, sorted(objects, key=lambda o: "clusterIP" not in o.get("spec", {})))
    listed = admission.request(None, "GET", f"/api/v1/namespaces/{SPACE}/services").json()["items"]
    addresses = {item["metadata"]["name"]: item["spec"].get("clusterIP") for item in listed}
    deadline = time.monotonic() + SETTLED
    while (wrong := _wrong(admission, replica, cases, addresses)) and time.monotonic() < deadline:
        time.sleep(0.1)
    hold(
        "a Tool is used where its Service's selector says where it leads, and nowhere else",
        not wrong,
        wrong=wrong,
    )
    _called(target, caller, cases, addresses)


def _wrong(
    admission: Admission, replica: HttpReplica, cases: list[Case], addresses: dict[str, str]
) -> list[dict[str, Any]]:
    """The cases in which the conditions or what was published are not as expected, yet or at all."""
    path = f"/apis/toolcrib.dev/v1alpha1/namespaces/{SPACE}/tools"
    items = admission.request(None, "GET", path).json()["items"]
    said = {item["metadata"]["name"]: _reasons(item) for item in items}
    wrong = []
    for case in cases:
        found = replica.snapshot.tools.get(f"{SPACE}/{case.name}")
        sent = "absent" if found is None or found.backend is None else found.backend.cluster_ip
        reasons = said.get(case.name, {})
        right = {
            "refused": reasons.get("Accepted") == "ServiceUnsupported" and sent == "absent",
            "missing": reasons.get("Ready") == "ServiceMissing" and sent is None,
            "used": reasons.get("Accepted") == "Accepted" and sent == addresses.get(case.name),
        }[case.expected]
        if not right:
            wrong.append({"case": case, "expected": case.expected, "published": sent, "reasons": reasons})
    return wrong


def _reasons(item: dict[str, Any]) -> dict[str, str]:
    found = item.get("status", {}).get("conditions", [])
    return {
        c["type"]: c["reason"]
        for c in found
        if (c["status"] == "True") == (c["reason"] in ("Accepted", "Ready"))
    }


def _called(target: Target, caller: dict[str, str], cases: list[Case], addresses: dict[str, str]) -> None:
    """Calls of every Tool by an agent that may call all: only addresses of the cluster that are not forbidden are dialled."""
    visible = {c.name for c in cases if c.expected != "refused"}

    def listed() -> bool:
        answer = target.http.get(target.url + "/", headers=caller)
        return {t["name"] for t in answer.json().get("tools", [])} == visible

    wait_until(listed, timeout=SETTLED)

    def call(case: Case) -> str:
        body = {"tool": f"{SPACE}/{case.name}", "arguments": {}}
        return code_of(target.http.post(f"{target.url}/v1/call", headers=caller, json=body))

    dialled = []
    for case in cases:
        address = addresses.get(case.name)
        if case.expected == "used" and _open(str(address)):
            dialled.append(case)
            continue
        code = {"refused": "not_permitted", "missing": "service_pending", "used": "egress_refused"}[
            case.expected
        ]
        found, deadline = call(case), time.monotonic() + SETTLED
        while found != code and time.monotonic() < deadline:
            # the registry may hear of a round later than the other replica
            time.sleep(0.1)
            found = call(case)
        hold("no call goes to such a Service", found == code, case=case, address=address, code=found)
    with ThreadPoolExecutor(DIALLED) as pool:
        for case, code in zip(dialled, pool.map(call, dialled[:DIALLED]), strict=False):
            hold(
                "a Service of the cluster at an address that is not forbidden is dialled",
                # nobody is there; who answers in his stead, as a proxy does, was dialled
                code not in ("egress_refused", "service_pending", "not_permitted"),
                case=case, address=addresses.get(case.name), code=code,
            )  # fmt: skip


def _open(address: str) -> bool:
    ip = ip_address(address)
    return ip in IPv4Network(CLUSTER) and ip not in IPv4Network(FORBIDDEN)


def _case(draw: random.Random, name: str) -> Case:
    twist = draw.choice(
        ["plain", "plain", "external", "external", "headless", "headless", "no selector", "missing", "elsewhere",
         "other port", "UDP", "slices", "slices", "slices", "forbidden", "forbidden", "outside"]
    )  # fmt: skip
    port = {"port": 9090 if twist == "other port" else PORT, "protocol": "UDP" if twist == "UDP" else "TCP"}
    spec: dict[str, Any] = {"selector": {"app": name}, "ports": [{"name": "a", **port}]}
    if draw.random() < 0.3:
        spec["type"] = draw.choice(["ClusterIP", "NodePort", "LoadBalancer"])
    if twist == "external":
        host = draw.choice(
            [
                "metadata.internal",
                "weaviate.toolcrib-system.svc",
                "10.0.0.1.nip.example",
                f"{name}.{SPACE}.svc",
            ]
        )
        spec = {**spec, "type": "ExternalName", "externalName": host}
        if draw.random() < 0.5:
            del spec["selector"]
    elif twist == "headless":
        spec = {**spec, "type": "ClusterIP", "clusterIP": "None"}
        if draw.random() < 0.5:
            del spec["selector"]
    elif twist == "no selector":
        del spec["selector"]
    elif twist in ("forbidden", "outside"):
        network = IPv4Network(FORBIDDEN) if twist == "forbidden" else _HALVES[1]
        number = int(name[1:])
        # a NodePort or LoadBalancer has such an address too
        spec["clusterIP"] = str(network[number % (network.num_addresses - 2) + 1])
    made = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": spec,
    }
    if twist == "missing":
        return Case(name, twist, None)
    if twist == "elsewhere":
        return Case(name, twist, None, others=[made | {"metadata": {"name": name, "namespace": ELSEWHERE}}])
    if twist != "slices":
        own = [_slice(draw, name, 0, own=True)] if twist == "plain" and draw.random() < 0.5 else []
        return Case(name, twist, made, own)
    slices = [_slice(draw, name, number, own=draw.random() < 0.5) for number in range(draw.randint(1, 3))]
    return Case(name, twist, made, slices)


def _slice(draw: random.Random, name: str, number: int, *, own: bool) -> dict[str, Any]:
    """An EndpointSlice as the controller makes it, or with one thing that it never does."""
    wrong = (
        ""
        if own
        else draw.choice(
            ["manager", "no manager", "owner", "no owner", "no controller", "kind", "space", "bare"]
        )
    )
    labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": _MANAGER}
    owner: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "name": name,
        "uid": f"uid-{name}",
        "controller": True,
    }
    pods: list[dict[str, Any]] = [
        {"kind": "Pod", "name": f"p{i}", "namespace": SPACE} for i in range(draw.randint(1, 3))
    ]
    if wrong == "manager":
        labels["endpointslice.kubernetes.io/managed-by"] = draw.choice(
            ["me", "endpointslicemirroring-controller.k8s.io", "mesh.example", f"x-{_MANAGER}"]
        )
    elif wrong == "no manager":
        del labels["endpointslice.kubernetes.io/managed-by"]
    elif wrong == "owner":
        owner |= draw.choice([{"name": f"{name}x"}, {"kind": "Deployment", "apiVersion": "apps/v1"}])
    elif wrong == "no controller":
        del owner["controller"]
    elif wrong in ("kind", "space", "bare"):
        bad = {
            "kind": {"kind": "Node", "name": "n", "namespace": SPACE},
            "space": {"kind": "Pod", "name": "p", "namespace": "bank"},
            "bare": {},
        }
        pods[draw.randrange(len(pods))] = bad[wrong]
    meta: dict[str, Any] = {"name": f"{name}-{number}", "namespace": SPACE, "labels": labels}
    if wrong != "no owner":
        meta["ownerReferences"] = [owner]
    endpoints = [
        {"addresses": [f"10.244.{number}.{i + 1}"]} | ({"targetRef": pod} if pod else {})
        for i, pod in enumerate(pods)
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta, "addressType": "IPv4",
        "ports": [{"port": PORT}], "endpoints": endpoints,
    }  # fmt: skip


def _tool(name: str) -> dict[str, Any]:
    backend = {"service": {"name": name, "port": PORT}, "path": "/", "timeout": "1s"}
    return tool(name, SPACE, scopes=["s:use"], backend={"http": backend})


def _create(admission: Admission, objects: list[dict[str, Any]]) -> None:
    for one in objects:
        made = admission.request(None, "POST", _PLACES[one["kind"]].format(one["metadata"]["namespace"]), one)
        if made.status_code != 201:
            raise RuntimeError(f"the stage is broken: {one} is answered {made.text}")


def _clear(admission: Admission) -> None:
    for kind in ("Service", "EndpointSlice"):
        for namespace in (SPACE, ELSEWHERE):
            gone = admission.request(None, "DELETE", _PLACES[kind].format(namespace))
            if not gone.is_success:
                raise RuntimeError(f"the stage is broken: {gone.text}")
