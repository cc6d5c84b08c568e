"""What a kind may ask while it assesses an object: other objects, who names whom, and what whole sets come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from toolcrib.lint.scanner import ToolLint
from toolcrib.resources.quantities import Quota
from toolcrib.wire.publish import PublishedAccount, PublishedBinding, PublishedServer, PublishedTool, Removed
from toolcrib_operator.kinds.accounts import Accounts, Declared
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.kinds.quotas import Quotas
from toolcrib_operator.kinds.reach import Territories
from toolcrib_operator.kinds.records import Records
from toolcrib_operator.kinds.trials import Trials
from toolcrib_operator.objects import Objects, Ref
from toolcrib_operator.settings import LoopSettings

_NOBODY: Set[Ref] = frozenset()


class Links:
    """Who names what: a key is another object's Ref, or what several objects must not share. Both ways."""

    def __init__(self) -> None:
        self._of: dict[Hashable, tuple[Hashable, set[Ref]]] = {}

    def of(self, key: Hashable) -> Set[Ref]:
        """The objects that name `key`."""
        found = self._of.get(key)
        return _NOBODY if found is None else found[1]

    def put(self, ref: Ref, before: Iterable[Hashable], after: Iterable[Hashable]) -> tuple[Hashable, ...]:
        """`ref` names `after` in place of `before`; returns `after`, equal keys as one object."""
        for key in before:
            named = self._of[key][1]
            named.discard(ref)
            if not named:
                del self._of[key]
        made = []
        for key in after:
            held, named = self._of.setdefault(key, (key, set()))
            named.add(ref)
            made.append(held)
        return tuple(made)


class Slices:
    """Which EndpointSlices bear the name of a Service.

    Apart from `Links`: there is one for each Service of the cluster, and few of those are a Tool's, so each takes as little
    as it can.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[Ref, ...]] = {}
        self._service: dict[Ref, str] = {}

    def of(self, service: str) -> tuple[Ref, ...]:
        """The EndpointSlices of a Service, `namespace/name`."""
        return self._of.get(service, ())

    def put(self, ref: Ref, service: str | None) -> set[str]:
        """`ref` bears the name of `service` now, None: of none. Returns the Services that are concerned."""
        before = self._service.get(ref)
        if before is not None and before != service:
            del self._service[ref]
            left = tuple(other for other in self._of[before] if other != ref)
            if left:
                self._of[before] = left
            else:
                del self._of[before]
        if service is not None and before != service:
            # one text for both tables
            service = next((self._service[other] for other in self._of.get(service, ())), service)
            self._service[ref] = service
            self._of[service] = (*self._of.get(service, ()), ref)
        return {key for key in (before, service) if key is not None}


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a publish has what is published of a kind: the field of that name, of `Batch`, `Publish` and `Removed`."""

    name: str
    key: Callable[[Any], str]
    """What a removal names it by."""


TOOLS = Slot("tools", lambda item: item.tool_id)
BINDINGS = Slot("bindings", lambda item: item.uid)
SERVERS = Slot("servers", lambda item: item.server_id)
SERVER = "ToolServer"


@dataclass
class Batch:
    """What one turn of the loop publishes; `changed` are the objects whose published form is another now.

    `moved` are tools, before and after, of which denials may say something else now: edited, or there again.
    `accounts` is None where none are published. `namespaces` are those whose tools have changed, `renamed` bindings of
    which a ServiceAccount came or went, `drifted` ToolServers whose quarantined tools may be others now.
    """

    tools: list[PublishedTool] = field(default_factory=list)
    servers: list[PublishedServer] = field(default_factory=list)
    bindings: list[PublishedBinding] = field(default_factory=list)
    accounts: list[PublishedAccount] | None = None
    removed: Removed = field(default_factory=Removed)
    changed: set[Ref] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    renamed: set[Ref] = field(default_factory=set)
    drifted: set[Ref] = field(default_factory=set)
    moved: list[tuple[PublishedTool, PublishedTool]] = field(default_factory=list)
    gone: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """What `removed` is made of when the batch is closed: by slot, keys."""

    def __bool__(self) -> bool:
        gone = self.removed
        return bool(
            self.tools
            or self.servers
            or self.bindings
            or self.accounts
            or gone.tools
            or gone.servers
            or gone.bindings
            or gone.accounts
        )


class Facts:
    """Everything beside the object itself. `Kind.assess` asks, `Kind.touched` and `Kind.changed` keep it up."""

    def __init__(self, objects: Objects, settings: LoopSettings, admitted: Admitted) -> None:
        self.objects, self.settings, self.admitted = objects, settings, admitted
        self.records = Records()
        self.links = Links()
        self.slices = Slices()
        self.lint = ToolLint()
        self.quotas = Quotas(settings.quota or Quota(0, 0), self.records)
        self.accounts: Accounts | Declared = (
            Accounts(objects, self.records) if settings.accounts else Declared(objects)
        )
        self.territories = Territories()
        self.trials = Trials()
        self.ending: set[str] = set()
        """Namespaces whose deletion has begun: their objects go in any order, a deny may go before the tools."""
        self.left: dict[Ref, PublishedTool] = {}
        """The last tools that went, without their definitions: one that comes back is compared with what it was."""
        self.unreachable: dict[str, str] = {}
        """Tools of which BackendReachable is False, and the places of their backends."""
        self._labels: dict[str, dict[str, dict[str, str]]] = {}

    def users(self, ref: Ref) -> Set[Ref]:
        """The objects that name `ref`; where that is a ToolServer, its tools too."""
        named = self.links.of(ref)
        behind = {tool for user in named if user.kind == SERVER for tool in self.links.of(user)}
        return named | behind if behind else named

    def labels(self, kind: str) -> Mapping[str, Mapping[str, str]]:
        """The labels of all objects of a kind by key; read once for all objects that are assessed together."""
        if kind not in self._labels:
            self._labels[kind] = {e.ref.key: dict(e.labels) for e in self.objects.all(kind)}
        return self._labels[kind]

    def fresh(self) -> None:
        """Other objects are assessed from now on."""
        self._labels.clear()

    def drop(self, ref: Ref) -> None:
        """The object is gone, or no more than a fact: nothing need be known of it, unless it is published."""
        record = self.records.get(ref)
        if record is not None and record.published is None:
            self.links.put(ref, record.keys, ())
            self.records.drop(ref)
