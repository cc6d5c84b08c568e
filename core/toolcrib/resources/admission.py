"""The admission policies: who may write what into a Tool or a binding, asked of the cluster's own RBAC.

Five verbs on four resources of our group that exist in RBAC alone, after `escalate` and `bind`:

* `grant` on `scopes/<scope>`: hand a scope out in a binding; in the binding's namespace, or in the whole cluster
* `gate` on `scopes/<scope>`: put a scope on a Tool or on the tools of a ToolServer, in its namespace
* `equip` on `subjects/<name>`: give tools to that subject; in its namespace (ServiceAccount, Agent), or in the whole
  cluster, where the name is `<kind>:<issuer>#<name or client id>` (User, Group, OAuthClient). A binding without
  scopes gives nobody a tool

* `approve` on `tools/<name>`: say what an approved Tool is (`spec.approvedDigest`), or that it needs no approval any more;
  in its namespace. Who only approves needs no `gate`
* `release` on `bindings`: remove the revocation finalizer; in the whole cluster. The operator's role holds it

Every create and every change of a spec is checked in full. Whoever takes a deny back, by deleting or by changing its
binding, needs `grant` on all scopes there, and `equip` on each subject that it held back.

`make generate` writes them to `crds/` and into the chart; the operator compares what the cluster has with them.
(DESIGN §3, Four verbs in RBAC. Fields: admissionregistration.k8s.io/v1; costs: one authorizer check is 350,000 of the
10,000,000 that a policy may spend and of the 1,000,000 of one expression.)
"""

from __future__ import annotations

from typing import Any

from toolcrib.resources.kinds import KINDS
from toolcrib.resources.meta import GROUP
from toolcrib.resources.tools import ToolSpec

API_VERSION = "admissionregistration.k8s.io/v1"
POLICY = "ValidatingAdmissionPolicy"
BINDING = "ValidatingAdmissionPolicyBinding"
PLURALS = {POLICY: "validatingadmissionpolicies", BINDING: "validatingadmissionpolicybindings"}
LABEL = "app.kubernetes.io/part-of"
PART_OF = "toolcrib"

FINALIZER = "toolcrib.dev/revocation"
"""On every binding that is in use: deleting one returns when every replica of the registry refuses what it granted."""

MOST = 16
"""Scopes and subjects that a spec may hold: so many authorizer checks a policy, of 28 that it can afford."""

OPERATOR_BY_NAME = "request.userInfo.username.matches('^system:serviceaccount:[^:]+:toolcrib-operator$')"
"""Who the operator is where nobody says more: a service account of this name, in whatever namespace."""

NO_INPUT_SCHEMA = "missing, so models have to guess the arguments: describe them in a JSON schema"
FEW_WORDS = "has fewer than 3 words that say something"
"""What a warning at apply says of a Tool; the second in the words of `toolcrib validate` and the condition Questionable."""

END_THE_GRANT = "to end the grant, remove its scopes (and tools.allow and limits) and leave the deny"
"""What is left to who may not take a deny back: it takes no right over the subjects."""

_BINDING_KINDS = ("AgentScopeBinding", "ClusterAgentScopeBinding")
_DOCS = "docs/guides/admission.md"
_APPROVALS = "docs/guides/approve-a-change.md"
_SPEC_CHANGES = {
    "name": "spec-changes",
    "expression": "request.operation == 'CREATE' || object.spec != oldObject.spec",
}
_WHERE = [
    {"name": "within", "expression": "has(request.namespace) ? request.namespace : ''"},
    {
        "name": "place",
        "expression": "variables.within == '' ? 'the whole cluster' : 'the namespace ' + variables.within",
    },
    {
        "name": "role",
        "expression": "variables.within == '' ? 'a ClusterRole bound by a ClusterRoleBinding' :"
        " 'a Role bound in the namespace ' + variables.within",
    },
]
"""Of the object, '' where it is in none: an authorizer's check then is one for the whole cluster."""


def is_operator(account: str | None = None) -> str:
    """The CEL expression that finds the operator's own requests.

    `account` is its user name, `system:serviceaccount:<namespace>:<name>`; without one see `OPERATOR_BY_NAME`.
    """
    return OPERATOR_BY_NAME if account is None else f"request.userInfo.username == '{account}'"


def manifests(account: str | None = None) -> list[dict[str, Any]]:
    """Every policy, followed by its binding, as `kubectl apply` takes them; `account` as in `is_operator`."""
    found = []
    for name, (spec, action) in _specs(account).items():
        metadata = {"name": f"{name}.{GROUP}", "labels": {LABEL: PART_OF}}
        found.append({"apiVersion": API_VERSION, "kind": POLICY, "metadata": metadata, "spec": spec})
        bound = {"policyName": metadata["name"], "validationActions": [action]}
        found.append({"apiVersion": API_VERSION, "kind": BINDING, "metadata": metadata, "spec": bound})
    return found


def guarding(account: str | None = None) -> dict[tuple[str, str], dict[str, Any]]:
    """The specs that a grant rests on, by kind and name: all but those that only warn."""
    warns = {m["metadata"]["name"] for m in manifests() if m["spec"].get("validationActions") == ["Warn"]}
    return {
        (m["kind"], m["metadata"]["name"]): m["spec"]
        for m in manifests(account)
        if m["metadata"]["name"] not in warns
    }


def right(verb: str, resource: str, name: str) -> str:
    """A right as a rule of a Role, in one line, as the policies' messages show it."""
    return f"{{apiGroups: [{GROUP}], resources: [{resource}], resourceNames: ['{name}'], verbs: [{verb}]}}"


def _specs(account: str | None) -> dict[str, tuple[dict[str, Any], str]]:
    return {
        "bindings-grant": (_grant(), "Deny"),
        "bindings-equip": (_equip(), "Deny"),
        "bindings-lift": (_lift(), "Deny"),
        "bindings-release": (_release(), "Deny"),
        "tools-gate": (_gate(), "Deny"),
        "servers-gate": (_gate_of_servers(), "Deny"),
        "tools-approve": (_approve(), "Deny"),
        "servers-approve": (_approve_of_servers(), "Deny"),
        "operator": (_operator(is_operator(account)), "Deny"),
        "warnings": (_warnings(), "Warn"),
        "tools-warnings": (_tool_warnings(), "Warn"),
    }


def _policy(
    kinds: tuple[str, ...], operations: list[str], conditions: list[dict[str, str]], variables: list[dict[str, str]],
    validations: list[dict[str, str]],
) -> dict[str, Any]:  # fmt: skip
    """A policy with every field written down that the API server would fill in, so that the two can be compared."""
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": [GROUP],
                    "apiVersions": ["*"],
                    "operations": operations,
                    "resources": [KINDS[kind].plural for kind in kinds],
                    "scope": "*",
                }
            ],
        },
        "matchConditions": conditions,
        "variables": variables,
        "validations": validations,
    }


def _validation(expression: str, said: str, message: str) -> dict[str, str]:
    """`said` is CEL and knows the values; `message` stands in where it cannot be computed."""
    return {"expression": expression, "messageExpression": said, "message": message, "reason": "Forbidden"}


def _may(verb: str, resource: str, namespace: str, name: str) -> str:
    asked = f"authorizer.group('{GROUP}').resource('{resource}')"
    return f"{asked}.namespace({namespace}).name({name}).check('{verb}').allowed()"


def _rule(verb: str, resource: str, name: str) -> str:
    """`right` as CEL, for a name that is a CEL expression."""
    head, tail = right(verb, resource, "\0").split("\0")
    return f'"{head}" + {name} + "{tail}"'


def _scope_checks(verb: str, what: str, where: str = "") -> list[dict[str, str]]:
    """`what` and `where` are the words around the scope: you may not WHAT the scope WHERE."""
    checks = []
    for i in range(MOST):
        scope = f"variables.scopes[{i}]"
        checks.append(
            _validation(
                f"size(variables.scopes) <= {i} || " + _may(verb, "scopes", "variables.within", scope),
                f'"you may not {what} the scope \'" + {scope} + "\'{where} in " + variables.place + ": you need the rule " + '
                + _rule(verb, "scopes", scope)
                + f' + " in " + variables.role + " (see {_DOCS})"',
                f"you may not {what} one of these scopes{where}: you need the verb {verb} on each (see {_DOCS})",
            )
        )
    return checks


def _gives(who: str) -> dict[str, str]:
    """Whether a binding, `object` or `oldObject`, hands out anything: without scopes it only denies."""
    return {"name": "gives", "expression": f"has({who}.spec.scopes) && size({who}.spec.scopes) > 0"}


def _subject_checks(who: str, unless: str, wanted: str, more: str = "") -> list[dict[str, str]]:
    """`who` is the object whose subjects are meant; `unless` is CEL that lets them through; `more` CEL that adds advice."""
    checks = []
    for i in range(MOST):
        namespace, name = f"variables.namespaces[{i}]", f"variables.names[{i}]"
        checks.append(
            _validation(
                f"{unless}size({who}.spec.subjects) <= {i} || " + _may("equip", "subjects", namespace, name),
                f'"you may not {wanted} the subject \'" + {name} + "\' of " + '
                f"({namespace} == '' ? 'the whole cluster' : 'the namespace ' + {namespace}) + \": it takes the rule \" + "
                + _rule("equip", "subjects", name)
                + f" + \" in \" + ({namespace} == '' ? 'a ClusterRole bound by a ClusterRoleBinding' : "
                f"'a Role bound in the namespace ' + {namespace}){more} + \" (see {_DOCS})\"",
                f"you may not {wanted} one of these subjects: you need the verb equip on each (see {_DOCS})",
            )
        )
    return checks


def _subjects(who: str) -> list[dict[str, str]]:
    """Where and by what name the right to equip each subject is asked for."""
    here = "s.kind in ['ServiceAccount', 'Agent']"
    name = "s.kind == 'OAuthClient' ? s.clientId : s.name"
    return [
        {
            "name": "namespaces",
            "expression": f"{who}.spec.subjects.map(s, {here} ?"
            " (has(s.namespace) ? s.namespace : variables.within) : '')",
        },
        {
            "name": "names",
            "expression": f"{who}.spec.subjects.map(s, {here} ? s.name :"
            f" (s.issuer.contains('#') ? '*' : s.kind + ':' + s.issuer + '#' + ({name})))",
        },
    ]


def _grant() -> dict[str, Any]:
    scopes = {"name": "scopes", "expression": "has(object.spec.scopes) ? object.spec.scopes : []"}
    variables = [*_WHERE, scopes]
    return _policy(
        _BINDING_KINDS,
        ["CREATE", "UPDATE"],
        [_SPEC_CHANGES],
        variables,
        _scope_checks("grant", "grant"),
    )


def _equip() -> dict[str, Any]:
    checks = _subject_checks("object", "", "give tools to")
    conditions = [_SPEC_CHANGES, _gives("object")]
    return _policy(_BINDING_KINDS, ["CREATE", "UPDATE"], conditions, [*_WHERE, *_subjects("object")], checks)


def _gate() -> dict[str, Any]:
    variables = [*_WHERE, {"name": "scopes", "expression": "object.spec.scopes"}]
    checks = _scope_checks("gate", "put", " on a Tool")
    changes = {
        "name": "spec-changes",
        "expression": f"request.operation == 'CREATE' || !({_same_but(_APPROVED)})",
    }
    return _policy(("Tool",), ["CREATE", "UPDATE"], [changes], variables, checks)


_APPROVED = "approvedDigest"


def _same_but(left_out: str) -> str:
    """Whether an update leaves every field of a Tool's spec as it is but one. CEL."""
    names = sorted((field.alias or name) for name, field in ToolSpec.model_fields.items())
    each = (
        f"has(object.spec.{n}) == has(oldObject.spec.{n}) && (!has(object.spec.{n}) || object.spec.{n} == oldObject.spec.{n})"
        for n in names
        if n != left_out
    )
    return " && ".join(f"({one})" for one in each)


def _approve() -> dict[str, Any]:
    """Setting or changing the approved digest, and giving up that approval is needed. Taking an approval back is free."""
    changes = {
        "name": "approval-changes",
        "expression": "request.operation == 'CREATE' ? has(object.spec.approvedDigest) :"
        " (has(object.spec.approvedDigest) && (!has(oldObject.spec.approvedDigest)"
        " || object.spec.approvedDigest != oldObject.spec.approvedDigest))"
        " || (has(oldObject.spec.approval) && oldObject.spec.approval == 'Manual'"
        " && !(has(object.spec.approval) && object.spec.approval == 'Manual'))",
    }
    name = "object.metadata.name"
    check = _validation(
        _may("approve", "tools", "variables.within", name),
        f'"you may not approve the Tool \'" + {name} + "\' in " + variables.place + ": it takes the rule " + '
        + _rule("approve", "tools", name)
        + f' + " in " + variables.role + " (see {_APPROVALS})"',
        f"you may not approve this Tool: it takes the verb approve on tools (see {_APPROVALS})",
    )
    return _policy(("Tool",), ["CREATE", "UPDATE"], [changes], _WHERE, [check])


def _approve_of_servers() -> dict[str, Any]:
    """Whoever ends the approval of a server's tools approves whatever it sends from then on."""
    # a policy sees maps, and `import` is a word of CEL
    approval = (
        "('import' in {0}.spec && has({0}.spec['import'].approval) ? {0}.spec['import'].approval :"
        " has({0}.spec.mcp.service) ? 'Automatic' : 'Manual')"
    )
    ends = {
        "name": "approval-ends",
        "expression": approval.format("oldObject")
        + " == 'Manual' && "
        + approval.format("object")
        + " != 'Manual'",
    }
    check = _validation(
        _may("approve", "tools", "variables.within", "'*'"),
        "\"you may not end the approval of this server's tools: it takes the verb approve on all tools,"
        ' {apiGroups: [toolcrib.dev], resources: [tools], verbs: [approve]}, in " + variables.role'
        f' + " (see {_APPROVALS})"',
        f"you may not end the approval of this server's tools: it takes the verb approve on all tools (see {_APPROVALS})",
    )
    return _policy(("ToolServer",), ["UPDATE"], [ends], _WHERE, [check])


def _gate_of_servers() -> dict[str, Any]:
    """The scopes of the defaults one by one. For those that an override brings in there is no room: it takes all."""
    variables = [
        *_WHERE,
        {"name": "scopes", "expression": "object.spec.defaults.scopes"},
        {
            "name": "known",
            "expression": "!has(object.spec.overrides) || object.spec.overrides.all(o, !has(o.scopes)"
            " || o.scopes.all(s, s in object.spec.defaults.scopes))",
        },
    ]
    rest = _validation(
        "variables.known || " + _may("gate", "scopes", "variables.within", "'*'"),
        '"an override puts a scope on a tool that spec.defaults.scopes does not have: that takes the verb gate on all scopes,'
        ' {apiGroups: [toolcrib.dev], resources: [scopes], verbs: [gate]}, in " + variables.role'
        f' + " (see {_DOCS})"',
        f"an override puts a further scope on a tool: that takes the verb gate on all scopes (see {_DOCS})",
    )
    checks = [*_scope_checks("gate", "put", " on a ToolServer's tools"), rest]
    return _policy(("ToolServer",), ["CREATE", "UPDATE"], [_SPEC_CHANGES], variables, checks)


def _lift() -> dict[str, Any]:
    """A deny is kept if each of its patterns and scopes, its subjects and its territory is still there.

    Where a namespace is being deleted, its tools go too: nothing is lost with a deny over them, and the namespace
    controller, which holds no right of ours, has to get on.
    """
    has_deny = {
        "name": "denied",
        "expression": "has(oldObject.spec.tools) && (has(oldObject.spec.tools.deny) || has(oldObject.spec.tools.denyScopes))",
    }
    spec_changes = {
        "name": "spec-changes",
        "expression": "request.operation == 'DELETE' || object.spec != oldObject.spec",
    }
    kept = (
        "request.operation == 'DELETE'"
        " ? namespaceObject != null && has(namespaceObject.metadata.deletionTimestamp)"
        " : has(object.spec.tools)"
        " && (!has(oldObject.spec.tools.deny) || (has(object.spec.tools.deny)"
        " && oldObject.spec.tools.deny.all(p, p in object.spec.tools.deny)))"
        " && (!has(oldObject.spec.tools.denyScopes) || (has(object.spec.tools.denyScopes)"
        " && oldObject.spec.tools.denyScopes.all(s, s in object.spec.tools.denyScopes)))"
        " && oldObject.spec.subjects.all(s, s in object.spec.subjects)"
        " && (!has(oldObject.spec.namespaces) ||"
        " (has(object.spec.namespaces) && oldObject.spec.namespaces.all(n, n in object.spec.namespaces)))"
        " && (!has(oldObject.spec.namespaceSelector) ||"
        " (has(object.spec.namespaceSelector) && object.spec.namespaceSelector == oldObject.spec.namespaceSelector))"
    )
    everything = _validation(
        "variables.kept || " + _may("grant", "scopes", "variables.within", "'*'"),
        '"you may not remove the deny of " + oldObject.metadata.name + " in " + variables.place'
        ' + ": you need the verb grant on all scopes, {apiGroups: [toolcrib.dev], resources: [scopes], verbs: [grant]}, in "'
        f' + variables.role + variables.instead + " (see {_DOCS})"',
        f"you may not remove a deny: you need the verb grant on all scopes (see {_DOCS})",
    )
    gives = _gives("oldObject")["expression"]
    instead = {"name": "instead", "expression": f"{gives} ? '; {END_THE_GRANT}' : ''"}
    variables = [*_WHERE, {"name": "kept", "expression": kept}, instead, *_subjects("oldObject")]
    checks = [
        everything,
        *_subject_checks("oldObject", "variables.kept || ", "remove a deny from", " + variables.instead"),
    ]
    return _policy(_BINDING_KINDS, ["UPDATE", "DELETE"], [has_deny, spec_changes], variables, checks)


def _release() -> dict[str, Any]:
    """Whoever removes the finalizer has `kubectl delete` return before the replicas refuse.

    It is asked of a binding that nobody deletes, too: the deletion could follow before the operator puts it back. By RBAC
    and not by the operator's name: anybody may call a service account of his namespace like it.
    """
    has = f"has({{0}}.metadata.finalizers) && '{FINALIZER}' in {{0}}.metadata.finalizers"
    removed = {
        "name": "released",
        "expression": f"({has.format('oldObject')}) && !({has.format('object')})",
    }
    rule = "{apiGroups: [toolcrib.dev], resources: [bindings], verbs: [release]}"
    check = _validation(
        _may("release", "bindings", "''", "''"),
        f'"you may not remove the finalizer {FINALIZER} from " + oldObject.metadata.name + " in " + variables.place'
        ' + ": the operator removes it from a deleted binding once every registry replica refuses what it granted.'
        " To keep it, use kubectl apply or edit instead of replace. Where no operator will run again, you need the rule"
        f' {rule} in a ClusterRole bound by a ClusterRoleBinding (see {_DOCS})"',
        f"you may not remove the finalizer {FINALIZER}: you need the verb release on bindings (see {_DOCS})",
    )
    return _policy(_BINDING_KINDS, ["UPDATE"], [removed], _WHERE, [check])


def _operator(is_operator_: str) -> dict[str, Any]:
    """Defence in depth: it holds none of the verbs, so that these requests would be refused anyway.

    It may create Tools (where it may `gate` them): runtime registrations.
    """
    check = _validation(
        "request.operation == 'UPDATE' ? object.spec == oldObject.spec :"
        " request.operation == 'CREATE' && request.resource.resource == 'tools'",
        '"the operator may not " + request.operation + " a spec of " + request.resource.resource'
        ' + ": specs are for people and pipelines to write"',
        "the operator may not write specs: they are for people and pipelines to write",
    )
    conditions = [{"name": "operator", "expression": is_operator_}]
    return _policy(
        ("Tool", "ToolServer", *_BINDING_KINDS), ["CREATE", "UPDATE", "DELETE"], conditions, [], [check]
    )


def _tool_warnings() -> dict[str, Any]:
    """What makes a Tool hard to find and to call, as far as a moment tells it; the condition Questionable says the rest."""
    short = f'"spec.description: \'" + variables.description + "\' {FEW_WORDS}"'
    checks = [
        {
            "expression": "has(object.spec.inputSchema)",
            "messageExpression": f'"spec.inputSchema: {NO_INPUT_SCHEMA}"',
            "message": f"spec.inputSchema: {NO_INPUT_SCHEMA}",
        },
        {
            # one word that the operator does not read as several, as it does camelCase and text without spaces
            "expression": "!variables.description.matches('^([A-Z]?[a-z]+|[A-Z]+)[.!]?$')",
            "messageExpression": short,
            "message": f"spec.description: it {FEW_WORDS}",
        },
    ]
    said = "has(object.spec.description) ? object.spec.description.trim() : ''"
    variables = [{"name": "description", "expression": said}]
    return _policy(("Tool",), ["CREATE", "UPDATE"], [_SPEC_CHANGES], variables, checks)


def _warnings() -> dict[str, Any]:
    """What is allowed and may surprise; the operator says the rest in conditions."""
    none = "!has(object.spec.tools) || !has(object.spec.tools.{0}) ? [] : object.spec.tools.{0}"
    variables = [
        {
            "name": "wild",
            "expression": f"({none.format('allow')}).filter(p, p.contains('*') || p.contains('?'))",
        },
        {
            "name": "denied",
            "expression": f"({none.format('deny')}).map(p, p.lowerAscii())",
        },
        {
            "name": "shadowed",
            "expression": f"({none.format('allow')}).filter(p, '*' in variables.denied || p.lowerAscii() in variables.denied)",
        },
    ]
    checks = [
        {
            "expression": "size(variables.wild) == 0",
            "messageExpression": '"spec.tools.allow: \'" + variables.wild[0] + "\'" +'
            ' (size(variables.wild) > 1 ? " and other wildcards" : "") +'
            ' " also allows tools that are created later, by anyone who may create them there"',
            "message": "spec.tools.allow: a wildcard also allows tools that are created later",
        },
        {
            "expression": "size(variables.shadowed) == 0",
            "messageExpression": '"spec.tools.allow: \'" + variables.shadowed[0] + "\'" +'
            ' (size(variables.shadowed) > 1 ? " and others allow" : " allows") +'
            ' " nothing: spec.tools.deny matches the same, and a deny wins"',
            "message": "spec.tools.allow: a pattern is denied too, and a deny wins",
        },
    ]
    return _policy(_BINDING_KINDS, ["CREATE", "UPDATE"], [_SPEC_CHANGES], variables, checks)
