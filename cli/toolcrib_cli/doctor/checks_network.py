"""Checks of who may reach what: NetworkPolicies of backends and of our own pods. Facts in, a verdict out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from toolcrib_cli.doctor.facts import (
    Facts,
    Object,
    Unread,
    Verdict,
    failed,
    labels_of,
    listed,
    name_of,
    passed,
)
from toolcrib_cli.doctor.network import Door, door, matches


def services_of(facts: Facts) -> dict[tuple[str, str], set[int]]:
    """The Services that Tools name, and their ports."""
    found: dict[tuple[str, str], set[int]] = {}
    for tool in facts.of("Tool"):
        service = (((tool["spec"].get("backend") or {}).get("http")) or {}).get("service")
        if service:
            found.setdefault((tool["metadata"]["namespace"], service["name"]), set()).add(service["port"])
    return found


def tool_services(facts: Facts) -> Verdict:
    """Of each Service behind a Tool: whether a policy selects its pods, and lets in fewer than everybody."""
    wanted = services_of(facts)
    if not wanted:
        return passed("no Tool names a Service")
    there = {(s["metadata"]["namespace"], s["metadata"]["name"]): s for s in facts.of("Service")}
    bare, wide, missing = [], [], []
    for (namespace, name), ports in sorted(wanted.items()):
        service = there.get((namespace, name))
        if service is None:
            missing.append(f"{namespace}/{name}")
            continue
        doors = [
            door(facts.of("NetworkPolicy"), namespace, labels, _targets(service, ports, pod))
            for labels, pod in _pods(facts, service)
        ]
        if not all(d.selected for d in doors):
            bare.append(f"{namespace}/{name}")
        elif any(d.everybody for d in doors):
            wide.append(f"{namespace}/{name}")
    said = [
        f"no NetworkPolicy selects the pods of {listed(bare)}" if bare else "",
        f"policies let everybody in to {listed(wide)}" if wide else "",
    ]
    if any(said):
        return failed("; ".join(filter(None, said)))
    if missing:
        raise Unread(f"there is no Service {listed(missing)}")
    return passed(f"policies select the pods of all {len(wanted)} Services that Tools name")


def _pods(facts: Facts, service: Object) -> Iterator[tuple[Mapping[str, str], Object]]:
    """Labels and spec of the pods behind a Service; of one without pods, the labels that it asks for."""
    selector = service["spec"].get("selector") or {}
    namespace = service["metadata"]["namespace"]
    pods = [
        (p["metadata"].get("labels") or {}, p.get("spec") or {})
        for p in facts.of("Pod")
        if p["metadata"]["namespace"] == namespace
    ]
    mine = [pod for pod in pods if selector and matches({"matchLabels": selector}, pod[0])]
    yield from mine or [(selector, {})]


def _targets(service: Object, ports: set[int], pod: Object) -> set[int | str]:
    """What the ports of a Service are called in a pod: their numbers, and the names that its containers give them."""
    found: set[int | str] = set()
    for port in service["spec"].get("ports") or ():
        if port["port"] in ports:
            found.add(port.get("targetPort") or port["port"])
    for container in pod.get("containers") or ():
        for port in container.get("ports") or ():
            both = {port.get("name"), port["containerPort"]} - {None}
            if both & found and port.get("protocol", "TCP") == "TCP":
                found |= both
    return found or set(ports)


def metrics_from(facts: Facts) -> Verdict:
    """The metrics port of the registry, and the operator's port."""
    doors = {
        "registry": _door(facts, "registry", {"metrics", _metrics_port(facts)}),
        "operator": _door(facts, "operator", {"metrics", 8090}),
    }
    open_ = [name for name, d in doors.items() if not d.selected or d.everybody]
    if open_:
        return failed(f"everybody in the cluster may scrape: {listed(open_)}")
    peers = list(dict.fromkeys(p for d in doors.values() for p in d.named))
    return passed(f"allowed: {listed(peers)}" if peers else "no callers are allowed")


def admin_port(facts: Facts) -> Verdict:
    """The admin listener is for the operator."""
    found = _door(facts, "registry", {"admin", int(facts.settings.get("admin_port") or 8081)})
    if not found.selected or found.everybody:
        return failed("everybody in the cluster may reach the admin port of the registry")
    labels = labels_of(facts.workload("operator"))
    others = Door(True, False, tuple(p for p in found.peers if not _only(p, labels)), found.namespace)
    if others.peers:
        return failed(f"others than the operator may reach the admin port: {listed(others.named)}")
    return passed(f"let in: {listed(found.named)}")


def _only(peer: Object, labels: Mapping[str, str]) -> bool:
    """Whether a peer is the pods of one component of ours, by its labels, in our own namespace."""
    selector = peer.get("podSelector") or {}
    component = (selector.get("matchLabels") or {}).get("app.kubernetes.io/component")
    return set(peer) == {"podSelector"} and component is not None and matches(selector, labels)


def not_exposed(facts: Facts) -> Verdict:
    """No Ingress leads to the admin or metrics port."""
    namespace = facts.workload("registry")["metadata"]["namespace"]
    closed = {"admin", "metrics", 8081, 8091}
    found = []
    services = {
        s["metadata"]["name"]: s for s in facts.of("Service") if s["metadata"]["namespace"] == namespace
    }
    for ingress in facts.of("Ingress"):
        if ingress["metadata"]["namespace"] != namespace:
            continue
        for backend in _backends(ingress):
            port = backend.get("port") or {}
            service = services.get(backend.get("name", ""), {})
            targets = {
                p.get("targetPort")
                for p in (service.get("spec") or {}).get("ports") or ()
                if port.get("number") in (None, p["port"]) and port.get("name") in (None, p.get("name"))
            }
            if closed & (targets | {port.get("name"), port.get("number")}):
                found.append(name_of(ingress))
    if found:
        return failed(f"an Ingress leads to the admin or metrics port: {listed(found)}")
    return passed("no Ingress leads to the admin or metrics port")


def _backends(ingress: Object) -> Iterator[Object]:
    spec = ingress["spec"]
    if default := (spec.get("defaultBackend") or {}).get("service"):
        yield default
    for rule in spec.get("rules") or ():
        for path in (rule.get("http") or {}).get("paths") or ():
            if service := path["backend"].get("service"):
                yield service


def _metrics_port(facts: Facts) -> int:
    return int((facts.settings.get("metrics") or {}).get("port") or 8091)


def _door(facts: Facts, component: str, ports: set[int | str]) -> Door:
    workload = facts.workload(component)
    return door(facts.of("NetworkPolicy"), workload["metadata"]["namespace"], labels_of(workload), ports)
