"""Manifests and CRDs, from the command line: validate, crds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from toolcrib.lint.hidden_text import Hidden
from toolcrib_cli import options, output
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.examples import Example, examples
from toolcrib_cli.output import Format

if TYPE_CHECKING:
    from toolcrib_cli.manifests import FileContent, ManifestProblem
    from toolcrib_cli.remarks import Remark


@examples(
    "toolcrib validate examples/heist",
    Example(
        "sed 's/scopes: .*/scopes: []/' examples/heist/41-binding-hacker.yaml | toolcrib validate -", exit=1
    ),
)
def validate(
    files: Annotated[list[Path], typer.Argument(help="Files and folders. - is standard input.")],
    against_cluster: Annotated[
        bool,
        typer.Option(
            "--against-cluster",
            help="Also compare with a cluster: name conflicts, selectors, likely mistakes.",
        ),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
    namespace: options.DefaultNamespace = "default",
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    trusted_namespace_label: options.TrustedLabels = None,
    hidden_text: options.HiddenText = Hidden.REFUSE,
    out: options.Output = Format.TABLE,
) -> None:
    """Check manifests as the API server and the operator would, offline. Each finding has a file and a line.

    Exit code 1: an object would be rejected. An object that is accepted but not ready, or looks like a mistake, is a
    warning.
    """
    from toolcrib_cli import manifests

    contents = [
        manifests.read(file, default_namespace=namespace, hidden=hidden_text)
        for file in manifests.files_in(files)
    ]
    if not contents:
        raise CliError(
            f"no manifest files (.yaml, .yml, .json) in {', '.join(map(str, files))}",
            hint="specify the folder that has them, or - for standard input",
            code=Exit.USAGE,
        )
    if not any(c.objects or c.problems or c.skipped for c in contents):
        raise CliError(
            f"no objects in {', '.join(map(str, files))}",
            hint="specify a file with Tools or bindings; `toolcrib init` writes one to start from",
            code=Exit.USAGE,
        )
    told = _Told(contents)
    told.add(
        _remarks(contents, against_cluster, kubeconfig, context, trusted_namespace_label or (), hidden_text)
    )
    if out is Format.TABLE:
        told.show()
    else:
        output.data(told.plain(), out)
    if told.problems or (strict and told.warnings):
        raise typer.Exit(Exit.FAILED)


def _remarks(
    contents: list[FileContent], cluster: bool, kubeconfig: str | None, context: str | None, trusted: Sequence[str],
    hidden: Hidden,
) -> list[Remark]:  # fmt: skip
    # the operator's parts and the Kubernetes client: only who validates waits for them
    from toolcrib_cli.prediction import validation

    if not cluster:
        return validation.alone(contents, trusted=trusted, hidden=hidden, now=time.time())
    from toolcrib_cli.cluster import read_world

    world = read_world(kubeconfig=kubeconfig, context=context)
    return validation.in_cluster(world, contents, trusted=trusted, hidden=hidden, now=time.time())


class _Told:
    """Everything that is said of some files: what fails them, and what does not."""

    def __init__(self, contents: Sequence[FileContent]) -> None:
        from toolcrib_cli import manifests

        self._contents = contents
        self.problems: list[tuple[ManifestProblem, Remark | None]] = [
            (p, None) for p in [*(p for c in contents for p in c.problems), *manifests.duplicates(contents)]
        ]
        self.warnings: list[tuple[ManifestProblem, Remark]] = []

    def add(self, remarks: Iterable[Remark]) -> None:
        """What the operator says."""
        from toolcrib_cli.places import Places

        places = Places()
        for remark in remarks:
            said = (remark.problem(places), remark)
            if remark.used:
                self.warnings.append(said)
            else:
                self.problems.append(said)

    @property
    def not_ready(self) -> int:
        """Objects that are accepted, and kept from their effect."""
        return len({remark.item.key for _, remark in self.warnings if not remark.ready})

    def plain(self) -> dict[str, Any]:
        """As data."""
        return {
            "objects": self._objects,
            "notReady": self.not_ready,
            "problems": [_plain(p, remark) | {"refusedAtApply": p.refused} for p, remark in self.problems],
            "warnings": [_plain(p, remark) for p, remark in self.warnings],
            "skipped": [{"file": str(c.file), "object": s} for c in self._contents for s in c.skipped],
        }

    def show(self) -> None:
        """For people."""
        for problem, _ in self.problems:
            output.line(problem, style="red")
        for warning, _ in self.warnings:
            output.line(f"warning: {warning}", style="yellow")
        for content in self._contents:
            for skipped in content.skipped:
                output.line(f"{content.file}: skipped, not an object of Toolcrib: {skipped}")
        verdict = (
            f"{len(self.problems)} problem(s)"
            if self.problems
            else "none refused"
            if self.not_ready
            else "all valid"
        )
        verdict += f", {self.not_ready} not ready" if self.not_ready else ""
        verdict += f", {len(self.warnings)} warning(s)" if self.warnings else ""
        output.line(f"{self._objects} object(s) in {len(self._contents)} file(s): {verdict}")

    @property
    def _objects(self) -> int:
        return sum(len(c.objects) for c in self._contents)


def _plain(problem: ManifestProblem, remark: Remark | None) -> dict[str, object]:
    found: dict[str, object] = {
        "file": str(problem.file),
        "line": problem.line,
        "field": problem.finding.field,
        "message": problem.finding.message,
        "hint": problem.finding.hint,
    }
    if remark is not None:
        found |= {"object": remark.item.named, "reason": remark.reason, "ready": remark.used and remark.ready}
    return found


@examples(
    "toolcrib crds --write crds && ls crds",
    Example(
        "toolcrib crds | kubectl apply -f -",
        not_run="needs a cluster: tests/cluster applies the same objects",
    ),
)
def crds(
    write: Annotated[
        Path | None,
        typer.Option("--write", help="Folder to write to: one file for each kind, and one for the policies."),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions and admission policies, for `kubectl apply -f -`."""
    from toolcrib.resources import admission, crd

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
