"""Where Agents are read and written (the port of `in_cluster` and `in_local_mode`), and when a change is in effect."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from toolcrib_cli.errors import CliError

Body = Mapping[str, Any]
_PAUSE = 0.05
KINDS = ("Agent", "AgentScopeBinding", "ClusterAgentScopeBinding")


class Source(Protocol):
    """Agents, and the bindings that name them."""

    def objects(self, kinds: Sequence[str], namespace: str | None) -> list[Body]:
        """All objects of these kinds, or those of a namespace. Raises CliError."""
        ...

    def agent(self, namespace: str, name: str) -> Body | None:
        """One Agent, if there is one. Raises CliError."""
        ...

    def write(self, namespace: str, name: str, spec: dict[str, Any]) -> int:
        """Write these fields of an Agent's spec; returns its generation, 0 where that is not known. Raises CliError."""
        ...


def settled(
    source: Source, namespace: str, name: str, suspended: bool, generation: int, within: float
) -> None:
    """Return when every replica has it so.

    Raises:
        CliError: it was refused, or some replica has not confirmed it in time.
    """
    deadline = time.monotonic() + within
    while True:
        found = source.agent(namespace, name)
        said = conditions(found)
        current = (
            found is not None and (found.get("status") or {}).get("observedGeneration", -1) >= generation
        )
        told = [said.get(each, {}).get("status") for each in ("Suspended", "Propagated")]
        if current and told == [str(suspended), "True"]:
            return
        accepted = said.get("Accepted", {})
        if current and accepted.get("reason") in ("AdmissionPolicyMissing", "Invalid"):
            raise CliError(f"{namespace}/{name} is not {_word(suspended)}: {accepted.get('message')}")
        if time.monotonic() > deadline:
            raise CliError(
                f"{namespace}/{name} is written, but not every registry replica has confirmed it after {within:g} s",
                hint="`kubectl describe agents.toolcrib.dev` shows its conditions; the operator goes on",
            )
        time.sleep(_PAUSE)


def conditions(agent: Body | None) -> dict[str, Mapping[str, Any]]:
    """By type."""
    status = {} if agent is None else agent.get("status") or {}
    return {str(each.get("type")): each for each in status.get("conditions") or ()}


def is_suspended(agent: Body) -> bool:
    """Whether it asks for it, or still is."""
    held = conditions(agent).get("Suspended", {}).get("status") == "True"
    return held or bool((agent.get("spec") or {}).get("suspended"))


def accounts(bodies: Sequence[Body]) -> Iterator[str]:
    """namespace/name of the Agents, and of the service accounts that bindings name."""
    for body in bodies:
        home = body["metadata"].get("namespace", "")
        if body["kind"] == "Agent":
            yield f"{home}/{body['metadata']['name']}"
            continue
        for subject in body["spec"].get("subjects") or ():
            if subject.get("kind") in ("ServiceAccount", "Agent") and subject.get("name"):
                yield f"{subject.get('namespace') or home}/{subject['name']}"


def _word(suspended: bool) -> str:
    return "suspended" if suspended else "resumed"
