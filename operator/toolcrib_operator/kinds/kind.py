"""What the operator knows of a kind, as one object: what is watched and kept, what it means, publishes and says.

To add a kind, write one module with one such object, and put it into `table.KINDS`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from toolcrib.errors import Finding, InvalidManifest
from toolcrib.lint.weaknesses import Weakness
from toolcrib.resources.kinds import Resource, parse
from toolcrib.resources.meta import GROUP, VERSION
from toolcrib.snapshot import Snapshot
from toolcrib.wire.probes import BackendProbe
from toolcrib.wire.publish import PublishedBinding, PublishedTool
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.deployed import DeployedState
from toolcrib_operator.kinds.facts import SERVER, Batch, Facts, Slot
from toolcrib_operator.kinds.imported import ImportState
from toolcrib_operator.kinds.questions import Question
from toolcrib_operator.kinds.records import Record
from toolcrib_operator.kinds.statuses import Desired, Progress, Status
from toolcrib_operator.kinds.verdicts import AnyVerdict, Cause, Published, Verdict
from toolcrib_operator.objects import NOTHING, Entry, Ref, key_of
from toolcrib_operator.packing import PackedTool, packed_status

_LABELS = frozenset({"toolcrib.dev/source"})
"""All labels of our kinds that are kept: nobody asks for more, and an object may carry a megabyte of them."""


class Change(NamedTuple):
    """An object, None if it is gone, and its keys before and after the change."""

    ref: Ref
    entry: Entry | None
    before: tuple[Hashable, ...]
    after: tuple[Hashable, ...]


class Told(NamedTuple):
    """What the status of an object says once it is written, and each mistake that its Questionable condition sums up."""

    status: Status
    oddities: tuple[Question | Weakness, ...] = ()


class Kind:
    """A kind that is watched because others depend on it.

    Attributes:
        name, group, version, plural, namespaced: as the API server has it.
        selector: the labels of those that are listed; empty: all.
        watched: whether it is watched, and listed before anything is published. One that is not is listed where the
            operator may, every few seconds.
        bare: whether its metadata is all that is read.
        page, most: how many are in the first answer of a list, and in a later one whose objects are small.
        absent: what to tell where the API server does not know the kind.
    """

    name = ""
    group = ""
    version = "v1"
    plural = ""
    namespaced = True
    selector = ""
    watched = True
    bare = False
    page = 500
    most = 500
    absent = ""

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The URL path of all objects, of those of a namespace, or of one."""
        start = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{quote(namespace)}" if namespace else ""
        return f"{start}{within}/{self.plural}" + (f"/{quote(name)}" if name else "")

    def compact(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """What of an object of a list is held until the list is complete."""
        return manifest

    def read(self, manifest: Mapping[str, Any], *, condense: bool = True) -> Entry:
        """What is kept of an object; `condense` as of a `World`."""
        return made(self.name, manifest.get("metadata") or {})

    def keys(self, entry: Entry) -> Sequence[Hashable]:
        """What the object names: the Refs of others that it depends on, and what it must not share."""
        return ()

    def touched(self, change: Change, facts: Facts) -> Collection[Ref]:
        """Whom a change concerns."""
        return facts.users(change.ref)


class Situation(Protocol):
    """How far things have come, as a status asks."""

    facts: Facts

    @property
    def snapshot(self) -> Snapshot:
        """What is published."""
        ...

    def progress(self, record: Record) -> Progress:
        """Who has confirmed the object as it is published."""
        ...

    def indexed(self, tool: PublishedTool) -> tuple[bool | None, Cause | None]:
        """Whether it is in the search index (None: nobody knows), and what keeps it out."""
        ...

    @property
    def probing(self) -> bool:
        """Whether a replica is asked to probe backends."""
        ...

    def probe(self, tool: PublishedTool) -> BackendProbe | None:
        """What it said of the tool's backend; None: nothing."""
        ...

    def imported(self, server: Ref) -> ImportState | None:
        """What is known of a ToolServer's server and of its import; None: nothing."""
        ...

    def escaped(self, binding: PublishedBinding) -> Collection[str]:
        """The ids of tools that left what the binding denies."""
        ...

    def deployed(self, agent: Ref) -> DeployedState | None:
        """What stands at the API server for an Agent; None: it was not looked yet, or nothing is run."""
        ...


class Governed(Kind):
    """A kind of ours: its objects are assessed and published, and have a status.

    Attributes:
        slot: where what is published stands in a publish.
        finalizer: what is held by objects that are published, until every replica has confirmed that they are not.
        surveys: whether its status tells what is within its reach, and is written again when tools there change.
        tells_questions: whether an event tells of what is odd about an object.
    """

    group = GROUP
    version = VERSION
    absent = " (is the CRD installed? kubectl apply -f crds/)"
    slot: Slot
    finalizer: str | None = None
    surveys = False
    tells_questions = True

    def read(self, manifest: Mapping[str, Any], *, condense: bool = True) -> Entry:
        """The object without annotations and most labels, or what makes it unreadable; its status beside it."""
        metadata = manifest.get("metadata") or {}
        head = {"apiVersion": manifest.get("apiVersion"), "kind": self.name, "metadata": metadata}
        kept: Resource | PackedTool | None = None
        findings: tuple[Finding, ...] = ()
        try:
            # the status is ours: it is compared as it stands and can make no object invalid
            resource = self.parse(head | ({"spec": manifest["spec"]} if "spec" in manifest else {}))
            kept = self.kept(resource, condense=condense)
        except InvalidManifest as error:
            findings = error.findings
        except (ValueError, TypeError, RecursionError) as error:  # not even the error was foreseen
            findings = (Finding("", f"cannot be read: {type(error).__name__}"),)
        key = key_of(manifest)
        if self.namespaced and "/" not in key:
            key = f"default/{key}"
        return made(
            self.name, metadata, key=key, labels=_few(metadata.get("labels") or {}), kept=kept, findings=findings,
            said=packed_status(manifest.get("status") or {}),
        )  # fmt: skip

    def parse(self, manifest: dict[str, Any]) -> Resource:
        """The object. Raises InvalidManifest."""
        return parse(manifest)

    def kept(self, resource: Resource, *, condense: bool) -> Resource | PackedTool:
        """The form in which it is kept."""
        labels = _few(resource.metadata.labels)
        metadata = resource.metadata.model_copy(update={"annotations": {}, "labels": labels})
        return resource.model_copy(update={"metadata": metadata})

    def touched(self, change: Change, facts: Facts) -> Collection[Ref]:
        """Itself, and those that name it."""
        return {change.ref, *facts.links.of(change.ref)}

    def ends(self, entry: Entry, facts: Facts) -> bool:
        """Whether it counts as gone already."""
        return entry.deleting is not None

    def guarded(self, entry: Entry, record: Record) -> bool:
        """Whether this generation of it waits until the admission policies have been looked at."""
        return False

    def assess(self, entry: Entry, record: Record, facts: Facts) -> AnyVerdict:
        """Whether the object is used, and what is published of it."""
        raise NotImplementedError

    def refused(self, cause: Cause) -> AnyVerdict:
        """The verdict on an object that is not used, for a reason that does not come from its kind."""
        return Verdict(None, cause)

    def failed(self, cause: Cause, entry: Entry, record: Record, facts: Facts) -> AnyVerdict:
        """The verdict on an object whose assessment failed; the record has what is published of it so far."""
        self.forget(record, facts)
        return self.refused(cause)

    def forget(self, record: Record, facts: Facts) -> None:
        """The object is gone, or its assessment failed."""

    def changed(
        self, ref: Ref, old: Published | None, new: Published | None, facts: Facts, batch: Batch
    ) -> None:
        """What is published of an object is another now: what else follows from that."""

    def reaches(self, published: Published, namespaces: frozenset[str]) -> bool:
        """Whether tools of one of these namespaces are within its reach; asked of kinds that `surveys`."""
        return False

    def status(self, entry: Entry, record: Record, situation: Situation, now: float) -> Desired:
        """What `/status` should say; the record has the verdict."""
        raise NotImplementedError

    def told(self, entry: Entry, record: Record, situation: Situation, now: float) -> Told:
        """What `/status` says as soon as everything in it may be written."""
        return Told(self.status(entry, record, situation, now).status)

    def wrote(self, record: Record, before: Status, after: Status, now: float) -> None:
        """A status was written."""

    def announced(self, before: Status, after: Status) -> list[dict[str, Any]]:
        """The conditions that people are told of by an event."""
        return statuses.announced(before, after, questions=self.tells_questions)


def made(
    kind: str, metadata: Mapping[str, Any], *, key: str | None = None, labels: Mapping[str, str] | None = None,
    kept: Resource | PackedTool | None = None, findings: tuple[Finding, ...] = (), said: bytes = b"",
    body: Mapping[str, Any] = NOTHING,
) -> Entry:  # fmt: skip
    """An entry, by an object's metadata."""
    return Entry(
        ref=Ref(kind, key_of({"metadata": metadata}) if key is None else key),
        uid=metadata.get("uid") or "",
        resource_version=str(metadata.get("resourceVersion") or ""),
        generation=metadata.get("generation") or 0,
        created=sys.intern(metadata.get("creationTimestamp") or ""),
        deleting=metadata.get("deletionTimestamp"),
        finalizers=tuple(metadata.get("finalizers") or ()),
        owner=_controller(metadata),
        labels=(dict(metadata.get("labels") or {}) if labels is None else labels) or NOTHING,
        kept=kept,
        findings=findings,
        said=said,
        body=body,
    )


def _controller(metadata: Mapping[str, Any]) -> str:
    """The uid of the ToolServer that controls an object; of many tools it is one text."""
    for owner in metadata.get("ownerReferences") or ():
        group = str(owner.get("apiVersion") or "").partition("/")[0]
        if owner.get("controller") and (group, owner.get("kind")) == (GROUP, SERVER):
            return sys.intern(str(owner.get("uid") or ""))
    return ""


def _few(labels: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in labels.items() if k in _LABELS}
