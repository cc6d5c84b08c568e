"""Manifests and CRDs, from the command line: validate, crds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from toolcrib import admission, crd
from toolcrib_cli import manifests, options, output
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.output import Format


def validate(
    files: Annotated[list[Path], typer.Argument(help="Files and folders; - is standard input.")],
    out: options.Output = Format.TABLE,
) -> None:
    """Check manifests offline: the verdict that the API server and the operator would give."""
    contents = [manifests.read(file) for file in manifests.files_in(files)]
    if not contents:
        raise CliError("no manifest files (.yaml, .yml, .json) there", code=Exit.USAGE)
    if not any(c.objects or c.problems or c.skipped for c in contents):
        raise CliError("no objects there", code=Exit.USAGE)
    problems = [p for c in contents for p in c.problems] + list(manifests.duplicates(contents))
    if out is not Format.TABLE:
        output.data(
            {
                "objects": sum(len(c.objects) for c in contents),
                "problems": [
                    {
                        "file": str(p.file),
                        "line": p.line,
                        "field": p.finding.field,
                        "message": p.finding.message,
                        "hint": p.finding.hint,
                        "refusedAtApply": p.refused,
                    }
                    for p in problems
                ],
                "skipped": [{"file": str(c.file), "object": s} for c in contents for s in c.skipped],
            },
            out,
        )
    else:
        _print(contents, problems)
    if problems:
        raise typer.Exit(Exit.FAILED)


def _print(contents: list[manifests.FileContent], problems: list[manifests.Problem]) -> None:
    for problem in problems:
        output.line(problem, style="red")
    for content in contents:
        for skipped in content.skipped:
            output.line(f"{content.file}: skipped, not one of ours: {skipped}")
    objects = sum(len(c.objects) for c in contents)
    verdict = f"{len(problems)} problem(s)" if problems else "all valid"
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
