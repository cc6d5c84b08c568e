"""`toolcrib get`: the objects of the running local mode with their conditions, as kubectl shows those of a cluster."""

from __future__ import annotations

import time
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

import typer

from toolcrib_cli import options, output
from toolcrib_cli.commands import chosen, completion
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples
from toolcrib_cli.output import Format

ALL = "toolcrib"
"""All our kinds, as the category in a cluster."""


class Form(StrEnum):
    """How to print."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    DESCRIBE = "describe"


@cache
def _by_name() -> dict[str, str]:
    """Every kind by each of its names."""
    from toolcrib.resources import KINDS

    return {name: k.kind for k in KINDS.values() for name in (k.plural, k.singular, k.short)}


def _kinds(incomplete: str) -> list[str]:
    return [name for name in (*_by_name(), ALL) if name.startswith(incomplete)]


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    from toolcrib_cli.local.questions import ask

    folder = options.data_folder(ctx.params.get("data"))
    found = completion.within(lambda: ask(folder, kind=_asked(ctx.params.get("kind") or ALL))["objects"])
    names = {each["object"]["metadata"]["name"] for each in found}
    return sorted(name for name in names if name.startswith(incomplete))


@examples("toolcrib get tools", Example("toolcrib get asb hacker -o describe", lines=24))
def get(
    kind: Annotated[
        str,
        typer.Argument(
            help="tools (tl), toolservers (ts), agentscopebindings (asb), clusteragentscopebindings (casb), agents (ag), "
            "accessrequests (areq), toolcanaries (tcan), or toolcrib for all kinds.",
            autocompletion=_kinds,
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(help="Name of one object, or namespace/name.", autocompletion=_names)
    ] = None,
    namespace: chosen.Namespace = None,
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="All namespaces. The default.")
    ] = False,
    data: options.Data = None,
    out: Annotated[Form, typer.Option("-o", "--output", help="Output format.")] = Form.TABLE,
) -> None:
    """Show objects of the local mode with their conditions, as `kubectl get` does in a cluster."""
    from toolcrib_cli.local.questions import ask

    if namespace is not None and all_namespaces:
        raise CliError("Specify either -n or -A.", code=Exit.USAGE)
    wanted, (space, bare) = _asked(kind), _place(name, namespace)
    answer = ask(options.data_folder(data), kind=wanted, namespace=space, name=bare)
    found: list[dict[str, Any]] = answer["objects"]
    if name is not None and not found:
        where = f"{space}/{bare}" if space else bare
        raise CliError(f"not found: {kind} {where}", hint=f"list what exists with `toolcrib get {kind}`")
    if out in (Form.JSON, Form.YAML):
        shown = [each["object"] for each in found]
        one = name is not None and len(shown) == 1
        output.data(shown[0] if one else {"apiVersion": "v1", "kind": "List", "items": shown}, Format(out))
    elif out is Form.DESCRIBE:
        for number, each in enumerate(found):
            if number:
                output.line("")
            _describe(each)
    else:
        _table(found, wide=out is Form.WIDE)
        if kind == ALL:
            counts = ", ".join(f"{n} {k}{'s' if n != 1 else ''}" for k, n in answer["others"].items() if n)
            output.line(f"Not shown: {counts or 'nothing'}", stderr=True)
    if not found and out not in (Form.JSON, Form.YAML):
        output.line(f"No resources found{f' in namespace {space}' if space else ''}.", stderr=True)


def _asked(kind: str) -> list[str]:
    from toolcrib.resources import KINDS, mistakes

    if kind == ALL:
        return list(KINDS)
    plain, names = kind.lower().removesuffix(".toolcrib.dev"), _by_name()
    if plain not in names:
        raise CliError(f"unknown kind {kind!r}", hint=mistakes.close(kind, (*names, ALL)), code=Exit.USAGE)
    return [names[plain]]


def _place(name: str | None, namespace: str | None) -> tuple[str | None, str | None]:
    """Namespace and name that are asked for."""
    if name is None or "/" not in name:
        return namespace, name
    space, _, bare = name.partition("/")
    if namespace not in (None, space):
        raise CliError(
            f"{name} is not in the namespace {namespace}",
            hint=f"omit -n, or specify -n {space}",
            code=Exit.USAGE,
        )
    return space, bare


def _table(found: list[dict[str, Any]], *, wide: bool) -> None:
    from toolcrib.resources import KINDS
    from toolcrib_cli import columns

    now, first = time.time(), True
    for kind in KINDS:
        rows = [
            columns.row(each["object"], wide=wide, now=now)
            for each in found
            if each["object"]["kind"] == kind
        ]
        if rows:
            if not first:
                output.line("")
            output.table(columns.head(kind, wide=wide), rows)
            first = False


def _describe(each: dict[str, Any]) -> None:
    """Fields one below the other; conditions and events as tables."""
    from toolcrib.resources.conditions import timestamp

    shown = each["object"]
    metadata, status = shown["metadata"], dict(shown["status"])
    conditions = status.pop("conditions", [])
    output.line(f"Name:       {metadata['name']}")
    if "namespace" in metadata:
        output.line(f"Namespace:  {metadata['namespace']}")
    output.line(f"Kind:       {shown['kind']} ({shown['apiVersion']})")
    output.line(f"Created:    {metadata['creationTimestamp']}, generation {metadata['generation']}")
    if each["manifest"]:
        output.line(f"Manifest:   {each['manifest']}")
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items():
            output.line(f"{field.capitalize()}: {key}={value}")
    for heading, body in (("Spec", shown["spec"]), ("Status", status)):
        output.line(f"{heading}:")
        output.data(body, Format.YAML)
    output.line("Conditions:")
    rows = [(c["type"], c["status"], c["reason"], c["message"]) for c in conditions]
    output.table(("type", "status", "reason", "message"), rows)
    output.line("Events:" if each["events"] else "Events: none")
    if each["events"]:
        told = [(e["type"], e["reason"], timestamp(e["at"]), e["message"]) for e in each["events"]]
        output.table(("type", "reason", "at", "message"), told)
