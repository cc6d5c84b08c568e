"""The CustomResourceDefinitions, made from the models: one source for the cluster and for `validate`.

`make generate` writes them to `crds/`; a test fails when the files and the models drift apart.
"""

from __future__ import annotations

from typing import Any

from toolcrib.resources import confirmations
from toolcrib.resources.conditions import ConditionReason, said
from toolcrib.resources.kinds import KINDS, Kind
from toolcrib.resources.meta import GROUP, VERSION, Model

_READY = {
    "name": "Ready",
    "type": "string",
    "jsonPath": ".status.conditions[?(@.type=='Ready')].status",
    "description": "Whether everything asked for is in effect.",
}
_REASON = {
    "name": "Reason",
    "type": "string",
    "jsonPath": ".status.conditions[?(@.type=='Ready')].reason",
    "description": "Why it is ready, or why not.",
    "priority": 1,
}
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def _column(
    name: str, path: str, description: str, *, kind: str = "string", wide: bool = False
) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return column | {"priority": 1} if wide else column


_QUESTIONABLE = _column(
    "Questionable",
    ".status.conditions[?(@.type=='Questionable')].reason",
    "What looks like a mistake.",
    wide=True,
)

COLUMNS: dict[str, list[dict[str, Any]]] = {
    "Tool": [
        _READY,
        _column("Tool", ".status.name", "The name that agents see."),
        _column("Server", ".spec.server", "The server that the tool belongs to."),
        _column("Scopes", ".spec.scopes", "The scopes that open the tool."),
        _column("State", ".spec.state", "Active, Deprecated or Disabled."),
        _REASON,
        _column("Digest", ".status.digest", "sha256 of the definition that a model reads.", wide=True),
        _column(
            "Reachable",
            ".status.conditions[?(@.type=='BackendReachable')].reason",
            "Whether the backend can be reached.",
            wide=True,
        ),
        _column(
            "Approved",
            ".status.conditions[?(@.type=='Approved')].reason",
            "Whether the tool is as it was approved, where it needs that.",
            wide=True,
        ),
        _QUESTIONABLE,
        _AGE,
    ],
    "ToolServer": [
        _READY,
        _column(
            "Verified",
            ".status.conditions[?(@.type=='Verified')].status",
            "Whether the server answered a handshake and gave a full list.",
        ),
        _column("Tools", ".status.toolCount", "Tools in the server's list.", kind="integer"),
        _column("State", ".spec.state", "Active or Disabled."),
        _column("URL", ".spec.mcp.url", "Where the server is.", wide=True),
        _column("Service", ".spec.mcp.service.name", "The Service that the server is.", wide=True),
        _column("Approval", ".spec.import.approval", "Manual or Automatic, where it is set.", wide=True),
        _REASON,
        _AGE,
    ],
    "AgentScopeBinding": [
        _READY,
        _column("Subjects", ".spec.subjects[*].name", "Who gets the grant, or is denied."),
        _column("Scopes", ".spec.scopes", "The scopes granted."),
        _column("Tools", ".status.matchedTools", "Tools within reach.", kind="integer"),
        _column("Expires", ".spec.expiresAt", "When the grant ends."),
        _REASON,
        _QUESTIONABLE,
        _AGE,
    ],
}
COLUMNS["ClusterAgentScopeBinding"] = [
    *COLUMNS["AgentScopeBinding"][:3],
    _column("Namespaces", ".spec.namespaces", "The namespaces whose tools are meant.", wide=True),
    *COLUMNS["AgentScopeBinding"][3:],
]
COLUMNS["Agent"] = [
    _READY,
    _column(
        "Suspended",
        ".status.conditions[?(@.type=='Suspended')].status",
        "Whether its identities get nothing.",
    ),
    _column(
        "Deployed",
        ".status.conditions[?(@.type=='Deployed')].status",
        "Whether what the operator runs is as the Agent says; empty: it runs nothing.",
    ),
    _column("Tools", ".status.tools", "Tools that its account sees now.", kind="integer"),
    _column(
        "Discovering",
        ".status.conditions[?(@.type=='Discovering')].reason",
        "Whether its pods have discovered their tools.",
        wide=True,
    ),
    _column("Last-Run", ".status.lastRun.outcome", "What became of its last task.", wide=True),
    _column(
        "Account", ".spec.serviceAccountName", "Its ServiceAccount; its own name where empty.", wide=True
    ),
    _column("Why", ".spec.reason", "Why it is suspended.", wide=True),
    _column("Mode", ".spec.mode", "How it uses tools.", wide=True),
    _column("Model", ".spec.model.name", "The model that it talks to.", wide=True),
    _REASON,
    _AGE,
]
COLUMNS["AccessRequest"] = [
    _column(
        "State",
        ".status.conditions[?(@.type=='Decided')].reason",
        "AccessRequested, AccessApproved or AccessRejected.",
    ),
    _column("Tool", ".spec.tool", "The Tool that is asked for."),
    _column("Subject", ".spec.subject.name", "Who asks."),
    _column("Client", ".spec.subject.clientId", "Who asks, where it is an OAuthClient.", wide=True),
    _column("Why", ".spec.why", "The agent's own words, which nobody checked.", wide=True),
    _AGE,
]
COLUMNS["ToolCanary"] = [
    _READY,
    _column("Tool", ".spec.tool", "The Tool whose definition is tried."),
    _column("Share", ".spec.share", "Percent of the callers.", kind="integer"),
    _column("Result", ".status.result", "What the trial says; empty while it runs."),
    _REASON,
    _AGE,
]
_OF_CALLS = [
    _column("Tool", ".spec.tool", "The Tool that is called."),
    _column("Agent", ".spec.agent", "Who calls it."),
    _column("Decision", ".spec.decision", "Confirmed or Rejected; empty: it waits."),
    _column("By", ".spec.decidedBy", "Who decided."),
    _column("Expires", ".spec.expiresAt", "Until when it can be confirmed and made.", kind="date"),
    _column(
        "Hidden", ".spec.hiddenCharacters", "Characters of the arguments that are hidden.", kind="integer"
    ),
    _column("Arguments", ".spec.arguments", "The arguments, as JSON.", wide=True),
    _AGE,
]
_CONDITION_TYPES = {
    "Tool": ("Ready", "Accepted", "Indexed"),
    "ToolServer": ("Ready", "Accepted", "Verified"),
    "AgentScopeBinding": ("Ready", "Accepted", "Propagated"),
    "ClusterAgentScopeBinding": ("Ready", "Accepted", "Propagated"),
    "Agent": ("Ready", "Accepted", "Suspended", "Propagated"),
    "AccessRequest": ("Decided",),
    "ToolCanary": ("Ready", "Accepted", "RolledBack"),
}


def definitions() -> dict[str, dict[str, Any]]:
    """Every CustomResourceDefinition by kind, as `kubectl apply` takes it."""
    found = {kind.kind: _definition(kind) for kind in KINDS.values()}
    return found | {confirmations.KIND: _of_calls()}


def _of_calls() -> dict[str, Any]:
    """Of CallConfirmations. In no category: who lists our kinds may not read these."""
    names = {
        "kind": confirmations.KIND,
        "listKind": f"{confirmations.KIND}List",
        "plural": confirmations.PLURAL,
        "singular": confirmations.SINGULAR,
        "shortNames": [confirmations.SHORT],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{confirmations.PLURAL}.{GROUP}",
            "labels": {"app.kubernetes.io/part-of": "toolcrib"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": _OF_CALLS,
                    "schema": {"openAPIV3Schema": _root(confirmations.CallConfirmation)},
                }
            ],
        },
    }


def _definition(kind: Kind) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "toolcrib"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": [kind.short],
                "categories": ["toolcrib"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": COLUMNS[kind.kind],
                    "schema": {"openAPIV3Schema": schema(kind)},
                }
            ],
        },
    }


def schema(kind: Kind) -> dict[str, Any]:
    """The structural schema of a kind, with its CEL rules."""
    root = _root(kind.model)
    root["properties"]["status"]["default"] = {
        "conditions": [_waiting(t) for t in _CONDITION_TYPES[kind.kind]]
    }
    return root


def _root(model: type[Model]) -> dict[str, Any]:
    generated = model.model_json_schema(by_alias=True)
    definitions_ = generated.pop("$defs", {})
    root: dict[str, Any] = _structural(generated, definitions_)
    root["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    root["required"] = ["spec"]
    return root


def _waiting(kind: str) -> dict[str, Any]:
    """What an object says that no operator has looked at, after Gateway API's defaults."""
    return {
        "type": kind,
        "status": "Unknown",
        "reason": ConditionReason.PENDING.value,
        "message": said(ConditionReason.PENDING),
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }


def _structural(node: Any, definitions_: dict[str, Any]) -> Any:
    """Inline references, drop what structural schemas do not know, keep scalar defaults."""
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions_[node["$ref"].rsplit("/", 1)[1]]
        return _structural({**target, **{k: v for k, v in node.items() if k != "$ref"}}, definitions_)
    if "anyOf" in node:
        (only,) = [option for option in node["anyOf"] if option.get("type") != "null"]
        return _structural({**only, **{k: v for k, v in node.items() if k != "anyOf"}}, definitions_)
    kept: dict[str, Any] = {}
    for key, value in node.items():
        if key == "title" or (key == "default" and (not isinstance(value, str | int | bool) or value == "")):
            continue
        if key == "properties":
            kept[key] = {name: _structural(child, definitions_) for name, child in value.items()}
        elif key == "items":
            kept[key] = _structural(value, definitions_)
        elif key == "additionalProperties":
            if isinstance(value, dict) and value:
                kept[key] = _structural(value, definitions_)
        else:
            kept[key] = value
    if isinstance(kept.get("description"), str):
        kept["description"] = " ".join(kept["description"].split())
    return kept
