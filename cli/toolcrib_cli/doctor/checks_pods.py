"""Checks of how our pods run. Facts in, a verdict out."""

from __future__ import annotations

from toolcrib_cli.doctor.facts import Facts, Verdict, failed, labels_of, listed, passed, pod_of
from toolcrib_cli.doctor.network import matches

COMPONENTS = ("operator", "registry")


def restricted(facts: Facts) -> Verdict:
    """Not root, a root file system that is read-only, no privileges."""
    problems = []
    for component in COMPONENTS:
        pod = pod_of(facts.workload(component))
        whole = pod.get("securityContext") or {}
        for container in (*(pod.get("initContainers") or ()), *pod["containers"]):
            own = {**whole, **(container.get("securityContext") or {})}
            name = f"{component}/{container['name']}"
            wanted = {
                "runAsNonRoot": own.get("runAsNonRoot") is True,
                "readOnlyRootFilesystem": own.get("readOnlyRootFilesystem") is True,
                "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
                "capabilities": "ALL" in ((own.get("capabilities") or {}).get("drop") or ()),
                "seccompProfile": (own.get("seccompProfile") or {}).get("type")
                in ("RuntimeDefault", "Localhost"),
                "privileged": not own.get("privileged"),
            }
            problems += [f"{name}: {field}" for field, holds in wanted.items() if not holds]
    return (
        failed(f"not restricted: {listed(problems)}")
        if problems
        else passed("non-root, read-only root, no privileges")
    )


def several(facts: Facts) -> Verdict:
    """Two of each, and a PodDisruptionBudget that keeps one."""
    problems = []
    for component in COMPONENTS:
        workload = facts.workload(component)
        replicas = workload["spec"].get("replicas", 1)
        if replicas < 2:
            problems.append(f"{component}: {replicas} replica")
        namespace, labels = workload["metadata"]["namespace"], labels_of(workload)
        kept = [
            p
            for p in facts.of("PodDisruptionBudget")
            if p["metadata"]["namespace"] == namespace and matches(p["spec"].get("selector") or {}, labels)
        ]
        if not kept:
            problems.append(f"{component}: no PodDisruptionBudget")
    return (
        failed(listed(problems))
        if problems
        else passed("two replicas or more of each, with PodDisruptionBudgets")
    )
