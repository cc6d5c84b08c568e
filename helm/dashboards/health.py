"""Health: does policy reach every replica in time, is the index whole, does search answer, does the operator keep up."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders

from dashboards import fallbacks, operators, processes, propagation, replicas, search, servers
from dashboards.common import (
    ANY,
    BAD,
    GREEN,
    HEALTH,
    RED,
    SOURCE,
    YELLOW,
    Page,
    figure,
    page,
)
from dashboards.promql import DAY, leading, select

UID = HEALTH


def dashboard() -> builders.Dashboard:
    """The dashboard."""
    made = page(
        UID,
        "Toolcrib / Health",
        "Whether policy is in effect everywhere in time, and whether index, search and operator keep up.",
    )
    epoch = f"max by (namespace) ({select('toolcrib_operator_epoch')})"
    takeover = builders.AnnotationQuery().name("Takeover by another operator").datasource(SOURCE).enable(True)
    before = f"max by (namespace) ({select('toolcrib_operator_epoch')} offset 1m)"
    made.made.annotation(takeover.icon_color("orange").expr(f"{epoch} > {before}"))
    _glance(made)
    propagation.row(made)
    replicas.row(made)
    search.row(made)
    operators.row(made)
    servers.row(made)
    fallbacks.row(made)
    processes.row(made)
    return made.made


def _glance(made: Page) -> None:
    made.row("At a glance")
    made.add(
        figure(
            "Leaders",
            f"min(sum by (namespace) ({select('toolcrib_operator_leader')}))",
            "short",
            "Must be 1. 0: nothing is published; replicas serve what they have until it is 15 minutes old. See the "
            "operator's pods and the Lease `toolcrib-operator`. Runbook: ToolcribNoLeader.",
            steps=((1, GREEN), (2, RED)),
            below=RED,
        ),
        4,
        4,
    )
    known, current = leading("toolcrib_operator_replicas"), leading("toolcrib_operator_replicas_current")
    made.add(
        figure(
            "Replicas behind",
            f"sum({known} - {current})",
            "short",
            "Replicas of the registry without the latest revision. Above 0 for more than seconds: see the table of "
            "replicas and the operator's log. Runbook: ToolcribReplicaBehind.",
            steps=BAD,
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Oldest policy",
            f"max({select('toolcrib_policy_age_seconds')} >= 0)",
            "s",
            "Longest time since a replica heard the leader; about 10 s is normal. From a minute on: operator down or "
            "cut off. At 15 minutes calls are refused. Runbook: ToolcribPolicyAge.",
            steps=replicas.AGED,
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Problems",
            f"sum({select('toolcrib_operator_problems')})",
            "short",
            "What the operators' /readyz complains about: open it (port 8090), it says what and why.",
            steps=BAD,
        ),
        4,
        4,
    )
    made.add(
        figure(
            "Tools not indexed",
            f"max({leading('toolcrib_operator_index_waiting')})",
            "short",
            "Tools that search by meaning cannot find yet. They are listed and callable all the same. If it stays: "
            "Weaviate or the disk. Runbook: ToolcribIndexLag.",
            steps=ANY,
        ),
        4,
        4,
    )
    expiry = select("toolcrib_certificate_expiry_timestamp_seconds")
    made.add(
        figure(
            "Certificate ends in",
            f"min({expiry}) - time()",
            "s",
            "Time left of the registry's serving certificate that ends first. Renew the Secret (`helm upgrade` or "
            "cert-manager): it is read again without a restart.",
            steps=((7 * DAY, YELLOW), (21 * DAY, GREEN)),
            below=RED,
            none="no TLS",
        ),
        4,
        4,
    )
