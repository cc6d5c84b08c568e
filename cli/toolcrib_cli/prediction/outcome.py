"""What would be in effect: the operator's own assessment of a cluster's or a folder's objects, before and after changes.

Nothing is applied. Selectors, name conflicts and refused objects come out as they would, for the same functions judge. A
change of an object of a cluster is what `kubectl apply` makes of it (`applying`); in a folder the file is the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolcrib.errors import InvalidManifest
from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources import KINDS, parse
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.quantities import Quota
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import Publish, Removed, Revision
from toolcrib_cli import manifests, three_way_merge
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.manifests import FileContent, Loaded
from toolcrib_cli.three_way_merge import LiveWorld
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.accounts import SERVICE_ACCOUNT
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.kinds.facts import Batch
from toolcrib_operator.kinds.namespace import NAMESPACE
from toolcrib_operator.kinds.secret import SECRET
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

COUNTED = (*KINDS, NAMESPACE, SERVICE_ACCOUNT)
_READ = (*COUNTED, SECRET)
APPLY_REFUSED = "ApplyRefused"
"""Why something `NotUsed` is not: merged with what the cluster holds it is invalid, so that all stays as it is."""
_SHOWN = 20
_NAME_LABEL = "kubernetes.io/metadata.name"
_LAST = "9999-12-31T23:59:59"
"""When something new is made: after all that is there, whatever this machine's clock says; in the order of the files."""


@dataclass(frozen=True, slots=True)
class NotUsed:
    """An object that is there, or would be, and that the operator does not use."""

    ref: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Kept:
    """What an apply leaves of an object that is there, though the manifest lacks it: dotted paths."""

    ref: str
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.ref} keeps {', '.join(self.fields)}, which the manifest does not have (as kubectl apply does)"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is in effect, and what would be, as `assessor` judges it.

    `changed` are the UIDs of bindings that are not applied so.
    """

    before: Snapshot
    after: Snapshot
    assessor: Assessor
    changed: frozenset[str] = frozenset()
    not_used: tuple[NotUsed, ...] = ()
    kept: tuple[Kept, ...] = ()


def read_files(
    paths: Sequence[Path], *, namespace: str = "default", empty: bool = False
) -> list[FileContent]:
    """Manifests of files, folders and standard input (`-`).

    Args:
        namespace: of those that name none.
        empty: there need not be any.

    Raises:
        CliError: one of them is refused, each problem with its file and line; or nothing is there.
    """
    contents = [manifests.read(file, default_namespace=namespace) for file in manifests.files_in(paths)]
    problems = [p for c in contents for p in c.problems if p.refused] + list(manifests.duplicates(contents))
    if problems:
        shown = "\n".join(f"  {p}" for p in problems[:_SHOWN])
        more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise CliError(
            f"{len(problems)} problem(s) in the manifests:\n{shown}{more}",
            hint="correct them; `toolcrib validate` checks the manifests alone",
            code=Exit.USAGE,
        )
    if not empty and not any(c.objects for c in contents):
        named = ", ".join(map(str, paths))
        raise CliError(
            f"no objects of Toolcrib in {named}",
            hint="specify a folder or file with Tools or bindings",
            code=Exit.USAGE,
        )
    return contents


def folder_world(contents: Iterable[FileContent]) -> World:
    """The objects of manifests as if they were all that a cluster holds."""
    world = World(required=COUNTED)
    items = [item for content in contents for item in content.objects]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    for kind in _READ:
        of_kind = [item for item in items if item.kind == kind]
        world.replace(kind, [_manifest(item, None, _in_turn(now, i)) for i, item in enumerate(of_kind)])
    return world


def predict(
    world: World,
    changes: Iterable[FileContent] = (),
    deletions: Iterable[str] = (),
    *,
    trusted: Sequence[str] = LoopSettings.trusted_namespace_labels,
    accounts: bool = True,
    hidden: Hidden | None = None,
    quota: Quota | None = None,
) -> Prediction:
    """What is in effect in `world`, and what would be after `changes` are applied and `deletions` carried out.

    Args:
        world: it is changed. Changes of objects of a LiveWorld are merged as `kubectl apply` does.
        changes: manifests that are added, or applied to those of their name.
        deletions: `Kind/namespace/name`, or `Kind/name` where there is no namespace.
        trusted: namespace labels that the operator lets selectors use.
        accounts: whether `world` knows all service accounts.
        hidden: what the operator does with hidden text; None: as statuses tell.
        quota: of each namespace; None: as statuses tell.

    Raises:
        CliError: a deletion names nothing that is there.
    """
    # who may call does not depend on Services, and few who ask may read them
    settings = LoopSettings(
        trusted_namespace_labels=tuple(trusted),
        accounts=accounts,
        services=False,
        hidden_text=_hidden(world) if hidden is None else hidden,
        quota=quota,
    )
    assessor = Assessor(world, settings, _admitted())
    before = _step(None, _assessed(world, assessor))
    for ref in [_deletion(world, text) for text in deletions]:
        world.remove(ref.kind, ref.key)
    left: list[Kept] = []
    invalid: list[NotUsed] = []
    items = (item for content in changes for item in content.objects if item.kind in _READ)
    for number, item in enumerate(items):
        held = world.get(
            ref := Ref(item.kind, f"{item.namespace}/{item.name}" if item.namespace else item.name)
        )
        live = world.live(ref) if held is not None and isinstance(world, LiveWorld) else None
        new = _manifest(item, held, _in_turn(_LAST, number))
        if held is not None and live is not None:
            try:
                new = _merged(item, held, live)
            except (InvalidManifest, ValueError) as error:
                found = (
                    "; ".join(map(str, error.findings)) if isinstance(error, InvalidManifest) else str(error)
                )
                message = (
                    f"with what the cluster holds of it an apply is refused, and it stays as it is: {found}"
                )
                invalid.append(NotUsed(str(ref), APPLY_REFUSED, message))
                continue
            if fields := tuple(_kept(item, new, trusted)):
                left.append(Kept(str(ref), fields))
        world.upsert(item.kind, new)
    batch = _assessed(world, assessor)
    refused = tuple(
        NotUsed(str(ref), verdict.refusal.reason.value, verdict.refusal.message)
        for ref, verdict in sorted(assessor.verdicts.items())
        if verdict.refusal is not None
    )
    changed = frozenset(b.uid for b in batch.bindings)
    after = _step(before, batch)
    return Prediction(before, after, assessor, changed, (*invalid, *refused), tuple(left))


def _hidden(world: World) -> Hidden:
    """What the operator does with hidden text, by a status that tells of it; a folder's tools have none."""
    said = (c for entry in world.all("Tool") for c in entry.status.get("conditions") or ())
    warns = any(
        c.get("type") == "Questionable" and c.get("reason") == ConditionReason.HIDDEN_TEXT for c in said
    )
    return Hidden.WARN if warns else Hidden.REFUSE


def _admitted() -> Admitted:
    """Admission as statuses tell of it: what was refused for want of the policies stays so, what is written now is checked."""
    found = Admitted(external=False)
    found.problem, found.answered = None, found.begun + 1
    return found


def absent(world: World, contents: Iterable[FileContent]) -> list[str]:
    """The tools and bindings of `world` that the manifests do not hold, as `predict` takes deletions."""
    held = {(item.kind, item.namespace, item.name) for content in contents for item in content.objects}
    entries = [e for kind in KINDS for e in world.all(kind)]
    gone = [e.ref for e in entries if (e.ref.kind, e.ref.namespace, e.ref.name) not in held]
    return sorted(f"{ref.kind}/{ref.key}" for ref in gone)


def _assessed(world: World, assessor: Assessor) -> Batch:
    dirty, _ = world.take()
    due: Iterable[Ref] = assessor.expand(dirty)
    while due:
        assessor.judge(due)
        due, _ = assessor.settle()
    return assessor.batch()


def _in_turn(second: str, number: int) -> str:
    """A time of creation: as `kubectl apply` creates objects one after the other."""
    return f"{second}.{number:06}Z"


def _step(base: Snapshot | None, batch: Batch) -> Snapshot:
    """The snapshot that a replica would have after this batch."""
    seq = 1 if base is None or base.revision is None else base.revision.seq + 1
    return (base or Snapshot()).apply(
        Publish(
            base=None if base is None else base.revision,
            to=Revision(epoch=0, seq=seq),
            tools=tuple(batch.tools),
            bindings=tuple(batch.bindings),
            accounts=None if batch.accounts is None else tuple(batch.accounts),
            removed=batch.removed if base is not None else Removed(),
        )
    )


def _deletion(world: World, text: str) -> Ref:
    kind, _, key = text.partition("/")
    ref = Ref(kind, key)
    if kind not in COUNTED:
        raise CliError(
            f"--delete: not Kind/namespace/name: {text!r}",
            hint=f"kinds: {', '.join(COUNTED)}",
            code=Exit.USAGE,
        )
    if world.get(ref) is None:
        raise CliError(
            f"--delete: there is no {ref}",
            hint="check kind, namespace and name against --manifests or the cluster",
            code=Exit.USAGE,
        )
    return ref


def _manifest(item: Loaded, held: Entry | None, created: str) -> dict[str, Any]:
    """The manifest with what an API server fills in; of one that is `held`, that one's."""
    metadata: dict[str, Any] = dict(item.body.get("metadata") or {})
    if item.namespace is not None:
        metadata["namespace"] = item.namespace
    body = {**item.body, "metadata": metadata}
    return _filled(item, body, created) if held is None else _identified(item, body, held)


def _merged(item: Loaded, held: Entry, live: Mapping[str, Any]) -> dict[str, Any]:
    """The object as the API server would have it after an apply.

    Raises:
        InvalidManifest: it would refuse it, though what it holds is valid.
        ValueError: kubectl would refuse it.
    """
    written = {k: v for k, v in _manifest(item, None, "").items() if k != "status"}
    new = _identified(item, three_way_merge.applied(written, live), held)
    if item.kind in KINDS and not held.findings:
        parse({k: v for k, v in new.items() if k != "status"} | {"kind": item.kind})
    return new


def _identified(item: Loaded, body: dict[str, Any], held: Entry) -> dict[str, Any]:
    new = _filled(item, body, held.created)
    new["metadata"] |= {"uid": held.uid, "finalizers": list(held.finalizers)}
    if held.deleting is not None:
        new["metadata"]["deletionTimestamp"] = held.deleting
    return {**new, "status": dict(held.status)}


def _filled(item: Loaded, body: dict[str, Any], created: str) -> dict[str, Any]:
    metadata: dict[str, Any] = dict(body.get("metadata") or {})
    for name in ("resourceVersion", "uid", "generation"):
        metadata.pop(name, None)
    labels = dict(metadata.get("labels") or {})
    if item.kind == NAMESPACE:
        labels[_NAME_LABEL] = item.name
    return {**body, "metadata": metadata | {"labels": labels, "creationTimestamp": created}}


def _kept(item: Loaded, new: Mapping[str, Any], trusted: Iterable[str]) -> Iterator[str]:
    """What an apply keeps that can decide: of a Namespace the labels that the operator trusts."""
    if item.kind == NAMESPACE:
        written = (item.body.get("metadata") or {}).get("labels") or {}
        labels = new["metadata"]["labels"].keys() & (set(trusted) - {_NAME_LABEL})
        yield from (f"metadata.labels[{name}]" for name in sorted(labels - written.keys()))
    elif item.resource is not None:
        filled = item.resource.model_dump(by_alias=True, mode="json")
        specs = ({"spec": body.get("spec")} for body in (new, item.body, filled))
        yield from three_way_merge.kept(*specs)
