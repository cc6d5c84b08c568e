"""Manifests and CRDs, from the command line: validate, crds."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
import yaml

from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources import admission, crd
from toolcrib_cli import manifests, options, output, remarks
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.output import Format
from toolcrib_cli.remarks import Expected, hard_to_find


def validate(
    files: Annotated[list[Path], typer.Argument(help="Files and folders; - is standard input.")],
    against_cluster: Annotated[
        bool,
        typer.Option(
            "--against-cluster",
            help="Compare with what a cluster holds too: name conflicts, selectors, and what looks like a mistake.",
        ),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings end with exit code 1 too.")] = False,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="Namespace of manifests that name none.")
    ] = "default",
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    trusted_namespace_label: options.TrustedLabels = None,
    hidden_text: options.HiddenText = Hidden.REFUSE,
    out: options.Output = Format.TABLE,
) -> None:
    """Check manifests: the verdict that the API server and the operator would give, and warnings about tools that a
    search would find badly and bindings that grant nothing. Offline, unless told otherwise."""
    contents = [
        manifests.read(file, default_namespace=namespace, hidden=hidden_text)
        for file in manifests.files_in(files)
    ]
    if not contents:
        raise CliError(
            f"no manifest files (.yaml, .yml, .json) in {', '.join(map(str, files))}", code=Exit.USAGE
        )
    if not any(c.objects or c.problems or c.skipped for c in contents):
        raise CliError(f"no objects in {', '.join(map(str, files))}", code=Exit.USAGE)
    problems = [p for c in contents for p in c.problems] + list(manifests.duplicates(contents))
    if against_cluster:
        said = _against_cluster(contents, kubeconfig, context, trusted_namespace_label or ())
        problems += [_problem(e) for e in said if not e.used]
    else:
        said = [*remarks.never_grants(contents, time.time()), *hard_to_find(contents)]
    warnings = (remarks.hidden(contents) if hidden_text is Hidden.WARN else []) + [e for e in said if e.used]
    if out is not Format.TABLE:
        output.data(
            {
                "objects": sum(len(c.objects) for c in contents),
                "problems": [_plain(p) | {"refusedAtApply": p.refused} for p in problems],
                "warnings": [
                    _plain(_problem(e)) | {"object": e.item.named, "reason": e.reason} for e in warnings
                ],
                "skipped": [{"file": str(c.file), "object": s} for c in contents for s in c.skipped],
            },
            out,
        )
    else:
        _print(contents, problems, [_problem(e) for e in warnings])
    if problems or (strict and warnings):
        raise typer.Exit(Exit.FAILED)


def _against_cluster(
    contents: list[manifests.FileContent], kubeconfig: str | None, context: str | None, trusted: Sequence[str]
) -> list[Expected]:
    # the operator's parts and the Kubernetes client: only who asks for a cluster waits for them
    from toolcrib_cli.cluster import read_world
    from toolcrib_cli.prediction.validation import expected

    world = read_world(kubeconfig=kubeconfig, context=context)
    return expected(world, contents, trusted=trusted, now=time.time())


def _problem(said: Expected) -> manifests.ManifestProblem:
    return manifests.ManifestProblem(said.item.file, said.item.line, said.finding, refused=False)


def _plain(problem: manifests.ManifestProblem) -> dict[str, object]:
    return {
        "file": str(problem.file),
        "line": problem.line,
        "field": problem.finding.field,
        "message": problem.finding.message,
        "hint": problem.finding.hint,
    }


def _print(
    contents: list[manifests.FileContent],
    problems: list[manifests.ManifestProblem],
    warnings: list[manifests.ManifestProblem],
) -> None:
    for problem in problems:
        output.line(problem, style="red")
    for warning in warnings:
        output.line(f"warning: {warning}", style="yellow")
    for content in contents:
        for skipped in content.skipped:
            output.line(f"{content.file}: skipped, not one of ours: {skipped}")
    objects = sum(len(c.objects) for c in contents)
    verdict = f"{len(problems)} problem(s)" if problems else "all valid"
    verdict += f", {len(warnings)} warning(s)" if warnings else ""
    output.line(f"{objects} object(s) in {len(contents)} file(s): {verdict}")


def crds(
    write: Annotated[
        Path | None,
        typer.Option("--write", help="Write one file a kind, and one of the policies, into this folder."),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions and admission policies, ready for `kubectl apply -f -`."""
    documents = crd.definitions()
    policies = "---\n".join(_policy_yaml(p) for p in admission.manifests())
    if write is None:
        sys.stdout.write("---\n".join([*(_yaml(d) for d in documents.values()), policies]))
        return
    write.mkdir(parents=True, exist_ok=True)
    for document in documents.values():
        (write / f"{document['spec']['names']['plural']}.yaml").write_text(_yaml(document), encoding="utf-8")
    (write / "admission-policies.yaml").write_text(policies, encoding="utf-8")


def _yaml(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)


class _NoAliases(yaml.SafeDumper):
    """Writes what occurs twice twice: people read these files."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _policy_yaml(document: object) -> str:
    # an expression is one line, however long: the chart puts the operator's own account into one of them
    return yaml.dump(document, Dumper=_NoAliases, sort_keys=False, width=10_000, allow_unicode=True)
