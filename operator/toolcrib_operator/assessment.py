"""From dirty objects to one batch: which objects each change touches, their verdicts, what to publish.

In memory only: it asks the World and the pure functions of `kinds`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from toolcrib.lint.weaknesses import SearchLint
from toolcrib.resources.bindings import AgentScopeBinding
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.quantities import Quota
from toolcrib.resources.tools import Tool
from toolcrib.telemetry.logs import about_object
from toolcrib.wire.publish import Credential, PublishedAccount, PublishedBinding, PublishedTool, Removed
from toolcrib_operator.kinds import statuses
from toolcrib_operator.kinds.admission import Admitted
from toolcrib_operator.kinds.binding import assess_binding, uses_selector
from toolcrib_operator.kinds.credential import assess_credential, secret_of
from toolcrib_operator.kinds.quotas import Quotas
from toolcrib_operator.kinds.service import NOT_ASKED, ServiceVerdict, assess_service, service_of
from toolcrib_operator.kinds.service_account import Accounts
from toolcrib_operator.kinds.tool import NameKey, assess_tool, name_key, name_owner
from toolcrib_operator.kinds.verdicts import BindingVerdict, Cause, ToolVerdict
from toolcrib_operator.packing import PackedTool, shared
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import (
    BINDINGS,
    ENDPOINT_SLICE,
    NAMESPACE,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Entry,
    Ref,
    World,
)

log = logging.getLogger(__name__)

_POISON = Cause(ConditionReason.INVALID, "the operator failed to assess this object; its log has the reason")
"""One object that nobody foresaw must not stop the others."""


_REMEMBERED = 4_096


@dataclass
class Batch:
    """What one turn of the loop publishes; `changed` are the objects whose published form is another now.

    `moved` are tools, before and after, of which denials may say something else now: edited, or there again.
    `accounts` is None where they are not known. `renamed` are bindings of which a ServiceAccount came or went.
    """

    tools: list[PublishedTool] = field(default_factory=list)
    bindings: list[PublishedBinding] = field(default_factory=list)
    accounts: list[PublishedAccount] | None = None
    removed: Removed = field(default_factory=Removed)
    changed: set[Ref] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    renamed: set[Ref] = field(default_factory=set)
    moved: list[tuple[PublishedTool, PublishedTool]] = field(default_factory=list)

    def __bool__(self) -> bool:
        gone = self.removed
        return bool(
            self.tools or self.bindings or self.accounts or gone.tools or gone.bindings or gone.accounts
        )


class Assessor:
    """Verdicts on everything in a World, kept up as it changes."""

    def __init__(self, world: World, settings: LoopSettings, admitted: Admitted | None = None) -> None:
        self.verdicts: dict[Ref, ToolVerdict | BindingVerdict] = {}
        self.published: dict[Ref, PublishedTool | PublishedBinding] = {}
        self._world = world
        self._settings = settings
        self._admitted = admitted or Admitted()
        self._accounts = Accounts(world) if settings.accounts else None
        self._pending: set[Ref] = set()
        self._credentials: dict[Ref, Credential] = {}
        self._names: dict[Ref, NameKey] = {}
        self._holders: defaultdict[NameKey, set[Ref]] = defaultdict(set)
        self._secrets: dict[Ref, Ref] = {}
        self._users: defaultdict[Ref, set[Ref]] = defaultdict(set)
        self._backends: dict[Ref, str] = {}
        """Which Service a Tool names, as `namespace/name`; `_callers` is the same the other way round."""
        self._callers: defaultdict[str, set[Ref]] = defaultdict(set)
        self._foreign: defaultdict[str, dict[Ref, str]] = defaultdict(dict)
        """Of a Service, the EndpointSlices that are not its controller's, and why not; `_strays` is the way back."""
        self._strays: dict[Ref, str] = {}
        self._lint = SearchLint()
        self.quotas = Quotas(settings.quota or Quota(0, 0))
        self._selecting: set[Ref] = set()
        self._left: dict[Ref, PublishedTool] = {}
        """The last tools that went, without their definitions: one that comes back is compared with what it was."""
        self._ending: set[str] = set()
        """Namespaces whose deletion has begun: their objects go in any order, a deny may go before the tools."""

    @property
    def credentials(self) -> list[Credential]:
        """What the backends of accepted tools need, each once."""
        unique = {(c.namespace, c.name, c.key): c for c in self._credentials.values()}
        return [unique[key] for key in sorted(unique)]

    @property
    def account_exists(self) -> Callable[[str], bool] | None:
        """Whether there is a ServiceAccount `namespace/name`; None where that is not known."""
        return None if self._accounts is None else self._accounts.exists

    def expand(self, dirty: Iterable[Ref]) -> list[Ref]:
        """The dirty objects of our kinds and those that a change of them or of other kinds touches."""
        touched: set[Ref] = set()
        for ref in dirty:
            if ref.kind == NAMESPACE:
                touched |= self._selecting | self._index_namespace(ref)
            elif ref.kind == SECRET:
                touched |= self._users[ref]
            elif ref.kind == SERVICE_ACCOUNT:
                if self._accounts is not None:
                    self._accounts.changed((ref,))
            elif ref.kind == SERVICE:
                touched |= self._callers.get(ref.key, set())
            elif ref.kind == ENDPOINT_SLICE:
                touched |= self._index_slice(ref)
            else:
                touched.add(ref)
                if ref.kind == "Tool":
                    touched |= self._index_tool(ref)
                else:
                    self._index_binding(ref)
        return sorted(touched)

    def judge(self, refs: Iterable[Ref]) -> None:
        """Assess these objects; `batch` collects what follows."""
        namespaces: dict[str, dict[str, str]] | None = None
        for ref in refs:
            entry = self._world.get(ref)
            self._pending.add(ref)
            if entry is None or entry.deleting is not None or self._ends(ref):
                self.verdicts.pop(ref, None)
                self._credentials.pop(ref, None)
                self._admitted.forget(ref)
                self.quotas.drop(ref)
            elif ref.kind in BINDINGS:
                if namespaces is None and ref in self._selecting:
                    namespaces = {e.ref.name: dict(e.labels) for e in self._world.all(NAMESPACE)}
                self.verdicts[ref] = self._judge_binding(entry, namespaces or {})
            else:
                self.verdicts[ref] = self._placed(entry, self._judge_tool(entry))

    def settle(self) -> tuple[list[Ref], list[Ref]]:
        """Have the quotas decide, once everything that changed was judged; `batch` publishes what follows.

        Returns the tools that have a place again, which are to be judged again, and those that have none from now on.
        """
        moved = self.quotas.settle()
        for ref in moved.lost:
            self.verdicts[ref] = ToolVerdict(None, self.quotas.refusal(ref))
            self._credentials.pop(ref, None)
            self._pending.add(ref)
        return sorted(moved.regained), sorted(moved.lost)

    def batch(self) -> Batch:
        """What has changed since the last batch, to be published in one step."""
        batch, gone_tools, gone_bindings = Batch(), [], []
        for ref in sorted(self._pending):
            old = self.published.get(ref)
            verdict = self.verdicts.get(ref)
            new = None if verdict is None else verdict.published
            if new == old:
                continue
            batch.changed.add(ref)
            if self._accounts is not None and ref.kind in BINDINGS:
                self._accounts.bind(ref, _binding(old), _binding(new))
            for item in (old, new):
                if isinstance(item, PublishedTool):
                    batch.namespaces.add(item.namespace)
            self._move(ref, old, new, batch)
            if isinstance(old, PublishedTool) and new is None:
                gone_tools.append(old.tool_id)
            elif isinstance(old, PublishedBinding) and (new is None or new.uid != old.uid):
                gone_bindings.append(old.uid)
            if isinstance(new, PublishedTool):
                batch.tools.append(new)
            elif isinstance(new, PublishedBinding):
                batch.bindings.append(new)
            if new is None:
                self.published.pop(ref, None)
            else:
                self.published[ref] = new
        self._pending.clear()
        gone_accounts: list[str] = []
        if self._accounts is not None:
            batch.accounts, gone_accounts = self._accounts.batch()
            batch.renamed = self._accounts.bindings_of([*(a.key for a in batch.accounts), *gone_accounts])
        batch.removed = Removed(
            tools=tuple(gone_tools), bindings=tuple(gone_bindings), accounts=tuple(gone_accounts)
        )
        return batch

    def _move(
        self,
        ref: Ref,
        old: PublishedTool | PublishedBinding | None,
        new: PublishedTool | PublishedBinding | None,
        batch: Batch,
    ) -> None:
        """Note a tool that is not what it was, also if it was away in between."""
        if isinstance(old, PublishedTool) and new is None:
            self._left[ref] = _bare(old)
            if len(self._left) > _REMEMBERED:
                del self._left[next(iter(self._left))]
        elif isinstance(new, PublishedTool):
            before = old if isinstance(old, PublishedTool) else self._left.pop(ref, None)
            if before is not None and _bare(before) != _bare(new):
                batch.moved.append((_bare(before), _bare(new)))

    def bindings_over(self, namespaces: Collection[str]) -> list[Ref]:
        """Published bindings whose territory includes one of `namespaces`."""
        wanted = frozenset(namespaces)
        return [
            ref
            for ref, item in self.published.items()
            if isinstance(item, PublishedBinding)
            and (item.namespaces is None or not wanted.isdisjoint(item.namespaces))
        ]

    def _judge_binding(self, entry: Entry, namespaces: dict[str, dict[str, str]]) -> BindingVerdict:
        trusted = self._settings.trusted_namespace_labels
        try:
            verdict = assess_binding(entry, namespaces=namespaces, trusted=trusted)
            return self._admitted.judge(entry, verdict, _binding(self.published.get(entry.ref)))
        except Exception:
            log.exception("it cannot be assessed", extra=about_object(entry.ref.kind, entry.ref.key))
            self._admitted.forget(entry.ref)
            return BindingVerdict(None, _POISON)

    def _judge_tool(self, entry: Entry) -> ToolVerdict:
        owner, problem = None, None
        key = self._names.get(entry.ref)
        if key is not None and len(self._holders[key]) > 1:
            found = (self._world.get(ref) for ref in self._holders[key])
            owner = name_owner(e for e in found if e is not None)
        self._credentials.pop(entry.ref, None)
        if isinstance(entry.head, Tool) and entry.ref in self._secrets:
            secret = self._world.get(self._secrets[entry.ref])
            allowed = self._settings.credential_namespaces
            credential, problem = assess_credential(
                entry.head, secret, allowed=allowed, domain=self._settings.cluster_domain
            )
            if credential is not None:
                self._credentials[entry.ref] = credential
        try:
            service = self._judge_service(entry)
            hidden = self._settings.hidden_text
            verdict = assess_tool(entry, owner=owner, credential=problem, service=service, hidden=hidden)
            if verdict.published is not None and isinstance(tool := entry.resource, Tool):
                weak = self._lint.weaknesses(tool)
                verdict = replace(verdict, weaknesses=(*verdict.weaknesses, *weak))
        except Exception:
            log.exception("it cannot be assessed", extra=about_object(entry.ref.kind, entry.ref.key))
            verdict = ToolVerdict(None, _POISON)
        if verdict.published is None:
            self._credentials.pop(entry.ref, None)
        return verdict

    def _placed(self, entry: Entry, verdict: ToolVerdict) -> ToolVerdict:
        """The verdict, unless its namespace has no room for the tool."""
        tool = verdict.published
        if tool is None:
            self.quotas.drop(entry.ref)
            return verdict
        if self._settings.quota is None:
            refusal = statuses.told_quota(entry)
        else:
            self.quotas.put(entry, len(tool.model_dump_json()))
            refusal = self.quotas.refusal(entry.ref)
        if refusal is None:
            return replace(verdict, published=self._held(entry, tool))
        self._credentials.pop(entry.ref, None)
        return ToolVerdict(None, refusal)

    def _held(self, entry: Entry, tool: PublishedTool) -> PublishedTool:
        """The same as it is held: the published one where nothing differs, else one that shares what the World keeps."""
        if isinstance(entry.kept, PackedTool):
            tool = shared(tool, entry.ref.key, entry.kept)
        old = self.published.get(entry.ref)
        return old if isinstance(old, PublishedTool) and old == tool else tool

    def _judge_service(self, entry: Entry) -> ServiceVerdict:
        key = self._backends.get(entry.ref)
        if not self._settings.services or key is None or not isinstance(entry.head, Tool):
            return NOT_ASKED
        service = self._world.get(Ref(SERVICE, key))
        foreign = [(ref.name, why) for ref, why in self._foreign.get(key, {}).items()]
        return assess_service(entry.head, None if service is None else service.body, foreign)

    def _ends(self, ref: Ref) -> bool:
        """Whether it is a Tool that its namespace takes with it: gone as far as callers are concerned."""
        return ref.kind == "Tool" and ref.namespace in self._ending

    def _index_namespace(self, ref: Ref) -> set[Ref]:
        """Note whether a namespace is being deleted; returns its tools where that has changed."""
        entry, known = self._world.get(ref), ref.name in self._ending
        if not known and (entry is None or entry.deleting is None):
            return set()
        tools = {e.ref for e in self._world.all("Tool") if e.ref.namespace == ref.name}
        if entry is None:  # what is left of its tools goes with it, though that is not known here yet
            if not tools:
                self._ending.discard(ref.name)
        elif entry.deleting is None:
            self._ending.discard(ref.name)
        elif known:
            return set()
        else:
            self._ending.add(ref.name)
        return tools

    def _index_slice(self, ref: Ref) -> set[Ref]:
        """Note whether an EndpointSlice is foreign to the Service that it names; returns the tools of whom that concerns."""
        entry = self._world.get(ref)
        touched: set[Ref] = set()
        if (old := self._strays.pop(ref, None)) is not None:
            touched |= self._callers.get(old, set())
            del self._foreign[old][ref]
            if not self._foreign[old]:
                del self._foreign[old]
        if entry is not None and "foreign" in entry.body:
            key = f"{ref.namespace}/{entry.body['service']}"
            self._strays[ref], self._foreign[key][ref] = key, entry.body["foreign"]
            touched |= self._callers.get(key, set())
        return touched

    def _index_tool(self, ref: Ref) -> set[Ref]:
        """Update the lookup tables; returns who shares the tool's name or words, before or now."""
        entry = self._world.get(ref)
        tool = entry.head if entry is not None and isinstance(entry.head, Tool) else None
        shared = {Ref(ref.kind, key) for key in self._lint.update(ref.key, tool)}
        old_key, old_secret = self._names.pop(ref, None), self._secrets.pop(ref, None)
        if old_key is not None:
            self._holders[old_key].discard(ref)
            shared |= self._holders[old_key]
            if not self._holders[old_key]:
                del self._holders[old_key]
        if old_secret is not None:
            self._users[old_secret].discard(ref)
        if (old_service := self._backends.pop(ref, None)) is not None:
            self._callers[old_service].discard(ref)
            if not self._callers[old_service]:
                del self._callers[old_service]
        if tool is None:
            return shared
        key, secret = name_key(tool), secret_of(tool)
        self._names[ref] = key
        self._holders[key].add(ref)
        if secret is not None:
            self._secrets[ref] = secret
            self._users[secret].add(ref)
        if (service := service_of(tool)) is not None:
            self._backends[ref] = service
            self._callers[service].add(ref)
        return shared | self._holders[key]

    def _index_binding(self, ref: Ref) -> None:
        entry = self._world.get(ref)
        if entry is not None and not isinstance(entry.head, AgentScopeBinding) and uses_selector(entry):
            self._selecting.add(ref)
        else:
            self._selecting.discard(ref)


def _binding(item: PublishedTool | PublishedBinding | None) -> PublishedBinding | None:
    return item if isinstance(item, PublishedBinding) else None


def _bare(tool: PublishedTool) -> PublishedTool:
    """All of a tool that a deny goes by."""
    return PublishedTool(
        tool_id=tool.tool_id, uid="", namespace=tool.namespace, name=tool.name, server=tool.server,
        scopes=tuple(sorted(tool.scopes)), digest="", route_digest="",
    )  # fmt: skip
