"""What the admission policies are put together from: their shape, a right as CEL, checks of scopes one by one."""

from __future__ import annotations

from typing import Any

from toolcrib.resources.kinds import KINDS
from toolcrib.resources.meta import GROUP

MOST = 16
"""Scopes and subjects that a spec may hold: so many authorizer checks a policy, of 28 that it can afford."""

DOCS = "docs/guides/admission.md"
SPEC_CHANGES = {
    "name": "spec-changes",
    "expression": "request.operation == 'CREATE' || object.spec != oldObject.spec",
}
WHERE = [
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


_CONTROLLED = (
    "has({0}.metadata.ownerReferences) && {0}.metadata.ownerReferences.exists(o, has(o.controller) && o.controller"
    f" && o.kind == 'ToolServer' && o.apiVersion.startsWith('{GROUP}/'){{1}})"
)
CONTROLLED, CONTROLLED_BEFORE = _CONTROLLED.format("object", ""), _CONTROLLED.format("oldObject", "")
"""Whether a ToolServer controls an object. CEL."""
CONTROLLED_STILL = _CONTROLLED.format(
    "oldObject",
    " && has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(p, has(p.controller) && p.controller"
    " && p.uid == o.uid)",
)
"""Whether the same ToolServer controls it before and after."""


def right(verb: str, resource: str, name: str) -> str:
    """A right as a rule of a Role, in one line, as the policies' messages show it."""
    return f"{{apiGroups: [{GROUP}], resources: [{resource}], resourceNames: ['{name}'], verbs: [{verb}]}}"


def policy(
    kinds: tuple[str, ...], operations: list[str], conditions: list[dict[str, str]], variables: list[dict[str, str]],
    validations: list[dict[str, str]], *, plurals: tuple[str, ...] = (),
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
                    "resources": [*(KINDS[kind].plural for kind in kinds), *plurals],
                    "scope": "*",
                }
            ],
        },
        "matchConditions": conditions,
        "variables": variables,
        "validations": validations,
    }


def validation(expression: str, said: str, message: str) -> dict[str, str]:
    """`said` is CEL and knows the values; `message` stands in where it cannot be computed."""
    return {"expression": expression, "messageExpression": said, "message": message, "reason": "Forbidden"}


def may(verb: str, resource: str, namespace: str, name: str) -> str:
    """Whether RBAC gives the writer this verb; `namespace` and `name` are CEL expressions, '' is the whole cluster."""
    asked = f"authorizer.group('{GROUP}').resource('{resource}')"
    return f"{asked}.namespace({namespace}).name({name}).check('{verb}').allowed()"


def named(person: str, name: str) -> str:
    """CEL, true if a user of the API server may have this name: the server puts a prefix of any form before an issuer's names."""
    return f"{person}.endsWith({name})"


def rule(verb: str, resource: str, name: str) -> str:
    """`right` as CEL, for a name that is a CEL expression."""
    head, tail = right(verb, resource, "\0").split("\0")
    return f'"{head}" + {name} + "{tail}"'


def scope_checks(verb: str, what: str, where: str = "", unless: str = "") -> list[dict[str, str]]:
    """`what` and `where` are the words around the scope: you may not WHAT the scope WHERE; `unless` is CEL that lets it through."""
    checks = []
    for i in range(MOST):
        scope = f"variables.scopes[{i}]"
        checks.append(
            validation(
                f"{unless}size(variables.scopes) <= {i} || " + may(verb, "scopes", "variables.within", scope),
                f'"you may not {what} the scope \'" + {scope} + "\'{where} in " + variables.place + ": you need the rule " + '
                + rule(verb, "scopes", scope)
                + f' + " in " + variables.role + " (see {DOCS})"',
                f"you may not {what} one of these scopes{where}: you need the verb {verb} on each (see {DOCS})",
            )
        )
    return checks


def subject_checks(who: str, unless: str, wanted: str, more: str = "") -> list[dict[str, str]]:
    """`who` is the object whose subjects are meant; `unless` is CEL that lets them through; `more` CEL that adds advice."""
    checks = []
    for i in range(MOST):
        namespace, name = f"variables.namespaces[{i}]", f"variables.names[{i}]"
        checks.append(
            validation(
                f"{unless}size({who}.spec.subjects) <= {i} || " + may("equip", "subjects", namespace, name),
                f'"you may not {wanted} the subject \'" + {name} + "\' of " + '
                f"({namespace} == '' ? 'the whole cluster' : 'the namespace ' + {namespace}) + \": it takes the rule \" + "
                + rule("equip", "subjects", name)
                + f" + \" in \" + ({namespace} == '' ? 'a ClusterRole bound by a ClusterRoleBinding' : "
                f"'a Role bound in the namespace ' + {namespace}){more} + \" (see {DOCS})\"",
                f"you may not {wanted} one of these subjects: you need the verb equip on each (see {DOCS})",
            )
        )
    return checks


def subjects(who: str) -> list[dict[str, str]]:
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
