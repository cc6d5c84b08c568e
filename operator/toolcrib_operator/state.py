"""What this process is doing now, for `/readyz`, `/metrics` and anyone who asks why nothing happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolcrib_operator.elector import Elector
from toolcrib_operator.loop import Loop
from toolcrib_operator.replicas.access import AccessRequests
from toolcrib_operator.replicas.anchoring import Anchoring
from toolcrib_operator.replicas.imports import Imports
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.probes import ProbeReports
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.replicas.registrations import RegistrationIntake
from toolcrib_operator.watches.resync import Resync
from toolcrib_operator.world import World

SLOW_REPLICA = 5.0
"""Seconds without the latest revision after which a replica is named in `/readyz`."""


@dataclass(frozen=True)
class Leading:
    """The parts that only a leader has."""

    world: World
    resync: Resync
    publisher: Publisher
    index_sync: IndexSync
    loop: Loop
    intake: RegistrationIntake | None = None
    desk: AccessRequests | None = None
    anchoring: Anchoring | None = None
    probes: ProbeReports | None = None
    imports: Imports | None = None


class State:
    """The process as a whole; `leading` is None in a standby."""

    def __init__(self, elector: Elector) -> None:
        self.elector = elector
        self.leading: Leading | None = None

    @property
    def role(self) -> str:
        """leader or standby."""
        return "leader" if self.leading is not None and self.elector.valid() else "standby"

    def obstacles(self) -> list[str]:
        """What keeps this process from its work, in words: no Lease, nothing to list, no way to write."""
        found = [self.elector.problem] if self.elector.problem else []
        parts = self.leading
        if parts is None:
            return found
        found += [f"nothing is published: {kind} has not been listed" for kind in parts.world.unlisted]
        found += [parts.resync.problems[kind] for kind in sorted(parts.resync.problems)]
        if parts.loop.status_writer.problem:
            found.append(parts.loop.status_writer.problem)
        if parts.loop.started and not parts.resync.proven():
            found.append(
                "no heartbeats: the watch of the API server is silent, and a list did not confirm it"
            )
        return found

    def problems(self) -> list[str]:
        """Everything that is not as it should be, what others lack included; empty when all is well."""
        found, parts = self.obstacles(), self.leading
        if parts is None:
            return found
        found += [
            f"replica {link.replica.name}: {link.problem}" for link in parts.publisher.links if link.problem
        ]
        found += [
            f"replica {link.replica.name}: behind for {link.behind:.0f} s, and it does not answer"
            for link in parts.publisher.links
            if not link.problem and link.behind > SLOW_REPLICA
        ]
        if parts.publisher.revision is not None and not parts.publisher.links:
            found.append("no registry replica was found")
        if parts.loop.policies.admitted.problem:
            found.append(f"no new grant takes effect: {parts.loop.policies.admitted.problem}")
        if parts.index_sync.problem:
            found.append(f"the search index: {parts.index_sync.problem}")
        found += self.imports_problems(parts)
        if parts.intake is not None:
            found += [f"registrations at {name}: {why}" for name, why in parts.intake.problems.items()]
        return found

    def imports_problems(self, parts: Leading) -> list[str]:
        """What keeps the tools of servers from being imported, in words."""
        if parts.imports is None:
            return []
        found = [parts.imports.reports.problem] if parts.imports.reports.problem else []
        if failing := parts.imports.failing:
            first = min(failing, key=lambda ref: ref.key)
            found.append(f"{len(failing)} ToolServers are not imported; {first.key}: {failing[first]}")
        return found

    def report(self) -> dict[str, Any]:
        """The body of `/readyz`."""
        parts = self.leading
        body: dict[str, Any] = {"role": self.role, "problems": self.problems()}
        if parts is not None:
            revision = parts.publisher.revision
            body |= {
                "revision": None if revision is None else str(revision),
                "objects": {kind: len(parts.world.versions(kind)) for kind in parts.world.watched},
                "replicas": {
                    link.replica.name: None if link.confirmed is None else str(link.confirmed)
                    for link in parts.publisher.links
                },
                "waiting_for_index": parts.index_sync.waiting,
                "waiting_for_status": parts.loop.status_writer.backlog,
            }
        return body
