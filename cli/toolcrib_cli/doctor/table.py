"""The checklist: every item, what to do about it, and the check. The guide's table and the command's output are made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from toolcrib_cli.doctor import checks_access as access
from toolcrib_cli.doctor import checks_grants as grants
from toolcrib_cli.doctor import checks_network as network
from toolcrib_cli.doctor import checks_pods as pods
from toolcrib_cli.doctor import checks_settings as settings
from toolcrib_cli.doctor.facts import Facts, Outcome, Place, Unread, Verdict

BOTH = frozenset(Place)
CLUSTER = frozenset({Place.CLUSTER})
LOCAL = frozenset({Place.LOCAL})


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the checklist: `wanted` is how it should be."""

    name: str
    wanted: str
    remedy: str
    check: Callable[[Facts], Verdict]
    places: frozenset[Place] = CLUSTER


@dataclass(frozen=True, slots=True)
class Result:
    """One item and what came of it."""

    item: Item
    verdict: Verdict


AREAS: dict[str, tuple[Item, ...]] = {
    "Who may write": (
        Item("admission-policies", "The admission policies are installed and bound, unaltered, and fail closed.",
             "`admission.install: true`, or `kubectl apply -f crds/`", access.admission_policies),
        Item("editors-gate", "`edit` in a namespace does not publish tools.",
             "`rbac.editorsGate: false`; bind `toolcrib-tool-author` where people publish tools", access.editors_gate),
        Item("release-verb", "Only the operator may remove the revocation finalizer.",
             "take the verb `release` on `bindings` from other roles", access.release_holders),
        Item("operator-rights", "The operator holds what it needs; Secrets only in namespaces of credentials.",
             "delete roles of your own that are bound to it; list namespaces in `credentials.namespaces`", access.operator_rights),
        Item("registry-rights", "The registry's account holds no right in the cluster.",
             "delete the bindings of its ServiceAccount", access.registry_rights),
        Item("secret-readers", "No workload but the operator reads the Secrets of backends.",
             "keep them in namespaces where no ServiceAccount may get or list Secrets", access.secret_readers),
    ),
    "Who may reach what": (
        Item("tool-services", "NetworkPolicies select the pods behind every Tool, and do not let everybody in.",
             "`networkPolicy.tools`, or your own policy that allows the registry's pods", network.tool_services),
        Item("assertion", "Calls of Services carry an assertion that the backend can verify.",
             "`registry.assertion`; remove `backend.assertion: false` from Tools", settings.assertion, BOTH),
        Item("metrics-from", "Only named pods may scrape the metrics.",
             "`networkPolicy.enabled: true`, and name namespaces in `metrics.from`", network.metrics_from),
        Item("metrics-reasons", "Metrics do not tell a hidden tool from an absent one.",
             "`metrics.reasons: not_permitted`", settings.metrics_reasons, BOTH),
        Item("admin-port", "Only the operator reaches the admin port.",
             "`networkPolicy.enabled: true`; remove other policies for it", network.admin_port),
        Item("not-exposed", "No Ingress leads to the admin or metrics port.",
             "lead it to the Service of the agents' listener", network.not_exposed),
        Item("tls", "TLS at the door.", "`tls.mode` other than `off`", settings.tls, BOTH),
        Item("egress", "Backends outside the cluster are named hosts; the cluster's ranges are closed to them.",
             "list hosts in `egress.allow`, and the Service and pod ranges in `egress.cluster`", settings.egress, BOTH),
        Item("plain-http", "`url:` backends are called over https.", "`https://` in the Tool's `backend.http.url`",
             grants.plain_http, BOTH),
    ),
    "Who may call": (
        Item("anonymous", "Callers without a token see nothing.", "`registry.discovery.anonymous: none`",
             settings.anonymous, BOTH),
        Item("issuers", "Issuers' keys come over https; tokens have an audience of their own.",
             "`https` in `jwks_uri`, an `audience` that only Toolcrib has, no `allow_dev_issuer`", settings.issuers),
        Item("everywhere", "No binding grants over all namespaces.", "name `namespaces`, or select by labels",
             grants.everywhere, BOTH),
        Item("expiring", "Powers of the registry and grants over all namespaces expire; expired bindings are deleted.",
             "set `spec.expiresAt`; delete what has expired", grants.expiring, BOTH),
    ),
    "What gets in": (
        Item("hidden-text", "Tools with hidden text are refused.", "`text.hidden: refuse`; in the local mode no `--hidden-text warn`",
             settings.hidden_text, BOTH),
        Item("quotas", "A namespace's Tools are bounded.", "set `operator.quota.tools` and `operator.quota.bytes` to more than 0", settings.quotas),
    ),
    "Evidence": (
        Item("audit", "Every decision is recorded, chained with a key and anchored.",
             "`registry.audit.enabled: true`, `registry.audit.anchors: true`", settings.audit, BOTH),
        Item("audit-key", "The log's key is in your own Secret.", "`registry.audit.key.existingSecret`", settings.audit_key),
        Item("assertion-keys", "The keys of assertions are in your own Secret.", "`registry.assertion.keys.existingSecret`",
             settings.assertion_keys),
    ),
    "How it runs": (
        Item("restricted", "Pods run without root, privileges or a writable root.",
             "remove `podSecurityContext` and `securityContext` from your values", pods.restricted),
        Item("several", "Two replicas or more of operator and registry, with PodDisruptionBudgets.",
             "`profile: weaviate`, `operator.replicas: 2`, `pdb.enabled: true`", pods.several),
        Item("private-files", "Nobody else reads the local mode's data folder.", "`chmod -R go-rwx` of the data folder",
             settings.private_files, LOCAL),
    ),
}  # fmt: skip
"""The items by area, in the order in which they are printed."""


def items() -> Iterator[Item]:
    """Every item."""
    for found in AREAS.values():
        yield from found


def examine(facts: Facts) -> list[Result]:
    """The verdict on each item that means something here. What could not be read is unknown, never a pass."""
    results = []
    for item in items():
        if facts.place not in item.places:
            continue
        try:
            verdict = item.check(facts)
        except Unread as error:
            verdict = Verdict(Outcome.UNKNOWN, str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            verdict = Verdict(
                Outcome.UNKNOWN, f"an object has another shape than expected ({type(error).__name__})"
            )
        results.append(Result(item, verdict))
    return results
