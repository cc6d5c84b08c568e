"""Everything the two apps need, in one frozen object: `main` (or the local mode, or a test) fills it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.audit.log import DecisionLog
from toolcrib_registry.audit.refusal_reasons import RefusalReasons
from toolcrib_registry.calls.arguments import Arguments
from toolcrib_registry.calls.assertions.signing import Assertions
from toolcrib_registry.calls.backends.port import ToolBackend
from toolcrib_registry.calls.bulkheads import Bulkheads
from toolcrib_registry.calls.canaries import CanaryCounter
from toolcrib_registry.calls.confirmations import Confirmations
from toolcrib_registry.calls.credentials import CredentialSink
from toolcrib_registry.calls.in_flight import InFlight
from toolcrib_registry.clock import Clock
from toolcrib_registry.identity.authenticator import Authenticator
from toolcrib_registry.identity.issuer import ClientTokens
from toolcrib_registry.identity.resources import ProtectedResource
from toolcrib_registry.importing.importer import Importer
from toolcrib_registry.limits.charge import Charging
from toolcrib_registry.limits.large_requests import LargeRequests
from toolcrib_registry.metrics.recorder import Metrics
from toolcrib_registry.offerings.lists import OfferedLists
from toolcrib_registry.offerings.updates import Updates
from toolcrib_registry.policy.access_requests import AccessDesk
from toolcrib_registry.policy.outbox import OutboxQueue
from toolcrib_registry.policy.registration import AddressCheck, Registrar
from toolcrib_registry.policy.staging import Staging
from toolcrib_registry.policy.state import PolicyState
from toolcrib_registry.probing.prober import Prober
from toolcrib_registry.search.engine import SearchEngine
from toolcrib_registry.search.index.service import IndexService
from toolcrib_registry.settings import RegistrySettings
from toolcrib_registry.watch.slots import WatchSlots


@dataclass(frozen=True, slots=True)
class Deps:
    """The parts of one registry.

    `admin` verifies tokens of the admin listener; None: nobody is let in there. `registrar` None: registration is
    off. `outbox` is the registrar and the desk of a cluster: the operator empties it. `desk` takes access requests.
    `oauth` is the local issuer's token endpoint.
    `resources` are the paths that have tokens of their own, each with what verifies them in the place of `agents`.
    `is_down` tells whether a tool's backend is down, as far as this replica knows.
    `declared` tells the service accounts (`namespace/name`) that manifests declare where no operator says which exist.
    """

    settings: RegistrySettings
    clock: Clock
    state: PolicyState
    agents: Authenticator
    admin: Authenticator | None
    search: SearchEngine
    index: IndexService
    arguments: Arguments
    backend: ToolBackend
    assertions: Assertions
    limits: Charging
    bulkheads: Bulkheads
    confirmations: Confirmations
    in_flight: InFlight
    canaries: CanaryCounter
    credentials: CredentialSink
    metrics: Metrics
    streams: WatchSlots
    decisions: DecisionLog
    refusals: RefusalReasons
    staging: Staging
    large: LargeRequests
    prober: Prober
    importer: Importer
    offered: OfferedLists
    updates: Updates
    is_down: Callable[[PublishedTool], bool]
    outbox: OutboxQueue
    desk: AccessDesk
    registrar: Registrar | None = None
    check_address: AddressCheck | None = None
    oauth: ClientTokens | None = None
    declared: Callable[[], Collection[str]] | None = None
    resources: Mapping[str, ProtectedResource] = field(default_factory=dict)
