"""Who holds which rights, by RBAC's objects. Administrators of the cluster, who may do everything, are left out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolcrib_cli.doctor.facts import Facts, Object

ADMINISTRATORS = "system:masters"
EVERYTHING = "cluster-admin"


@dataclass(frozen=True, slots=True)
class Right:
    """One rule that a subject holds; `namespace` None: in the whole cluster."""

    kind: str
    subject: str
    namespace: str | None
    rule: Object
    via: str

    @property
    def who(self) -> str:
        return f"{self.kind} {self.subject}"

    def allows(self, verb: str, group: str, resource: str) -> bool:
        """Whether it is a right to `verb` some object of `resource`."""
        return (
            _has(self.rule.get("verbs"), verb)
            and _has(self.rule.get("apiGroups"), group)
            and _has(self.rule.get("resources"), resource)
        )


def _has(listed: Any, wanted: str) -> bool:
    return bool(listed) and (wanted in listed or "*" in listed)


def rights(facts: Facts) -> Iterator[Right]:
    """Every right of every subject, but those of cluster administrators.

    Raises:
        Unread: roles or their bindings could not be read.
    """
    roles = {("ClusterRole", "", r["metadata"]["name"]): r for r in facts.of("ClusterRole")}
    roles |= {("Role", r["metadata"]["namespace"], r["metadata"]["name"]): r for r in facts.of("Role")}
    for binding in (*facts.of("ClusterRoleBinding"), *facts.of("RoleBinding")):
        namespace = binding["metadata"].get("namespace")
        named = binding["roleRef"]
        if named["name"] == EVERYTHING and named["kind"] == "ClusterRole":
            continue
        role = roles.get((named["kind"], namespace if named["kind"] == "Role" else "", named["name"]), {})
        for rule in role.get("rules") or ():
            if not rule.get("resources"):
                continue
            for subject in binding.get("subjects") or ():
                if subject["name"] == ADMINISTRATORS:
                    continue
                name = subject["name"]
                if subject["kind"] == "ServiceAccount":
                    name = f"{subject.get('namespace') or namespace}/{name}"
                yield Right(subject["kind"], name, namespace, rule, f"{named['kind']} {named['name']}")


def of_account(facts: Facts, namespace: str, name: str) -> list[Right]:
    """The rights bound to one service account itself; what its groups hold everybody holds."""
    return [r for r in rights(facts) if (r.kind, r.subject) == ("ServiceAccount", f"{namespace}/{name}")]
