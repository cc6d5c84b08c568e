"""What the registry needs from outside, as protocols: adapters implement them, `main` chooses.

`CatalogStore` and `Counters` have a contract suite each in `tests/contract/`, run on every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from toolcrib.identity import Identity, KeySet
from toolcrib.wire.publish import Credentials, PublishedLimits, PublishedTool
from toolcrib_registry.limits.counters import Charge, Shortage
from toolcrib_registry.search.entry import IndexEntry, IndexIdentity, StoreHit, StoreQuery, Vector


class CatalogStore(Protocol):
    """The search index: definitions and vectors by digest. It may be wiped at any time and never decides anything.

    Every method may raise `StoreUnavailable` (try again) or `StoreDamaged` (rebuild).
    """

    @property
    def identity(self) -> IndexIdentity:
        """Entries of another identity do not count: not in the inventory, not in an answer."""
        ...

    @property
    def exact(self) -> bool:
        """True if any number of ids may be sent and the answer is the exact ranking over them, with evidence."""
        ...

    @property
    def state(self) -> int | None:
        """Another one after every change of what a search finds; None where others may write to the store as well."""
        ...

    async def inventory(self) -> dict[str, str]:
        """Tool id to digest of everything that is really in the store."""
        ...

    async def upsert(self, entries: Sequence[IndexEntry], vectors: Vector | None) -> None:
        """Put `entries` in, each in the place of an entry with its id. Idempotent.

        `vectors` has one row an entry; None only where the identity has no dimension. Returns when a search finds
        them all and they are stored as durably as the store can: the embedded one survives `kill -9`; a killed
        Weaviate may lose the last second, which the inventory then shows. On an error some may be in: repeat the
        call.

        Raises:
            StoreRejected: the store refuses some of them for good; the others are in.
        """
        ...

    async def confirm(self, ids: Collection[str]) -> dict[str, str]:
        """Read `ids` back from what searches read: tool id to digest of those that a search can find."""
        ...

    async def remove(self, ids: Collection[str]) -> None:
        """Take `ids` out; unknown ones are ignored."""
        ...

    async def search(self, query: StoreQuery) -> list[StoreHit]:
        """The best of what the query's restriction and filters admit, best first, at most `query.limit`."""
        ...

    async def vectors(self, ids: Collection[str]) -> dict[str, tuple[str, Vector]]:
        """Tool id to (digest, vector) of those of `ids` that have one."""
        ...

    async def tidy(self) -> list[str]:
        """Delete what former identities left and nobody uses any more; what was deleted, by name. To be called again
        and again while this identity's index is complete. Never what another installation or replica uses."""
        ...

    async def wipe(self) -> None:
        """Forget everything of this identity."""
        ...

    async def healthy(self) -> None:
        """Return if the store can answer now.

        Raises:
            StoreUnavailable: it cannot; the message says why.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and files. The store is not used afterwards."""
        ...


class Embedder(Protocol):
    """Text to vectors that can be compared by cosine."""

    @property
    def name(self) -> str:
        """Names model and version: vectors of two names are never compared."""
        ...

    @property
    def dimension(self) -> int:
        """Length of the vectors; 0 means there are none and search is lexical."""
        ...

    async def embed_query(self, text: str) -> Vector:
        """One normalised vector for a user's words.

        Raises:
            EmbedderUnavailable: no vector could be made now.
        """
        ...

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        """A request and the things it asks for, as normalised rows: the whole first, then its parts in their order.

        Whoever can reads the parts out of the one encoding of the whole; the others encode each, in one turn.

        Raises:
            EmbedderUnavailable: no vectors could be made now.
        """
        ...

    async def embed_documents(self, texts: Sequence[str]) -> Vector:
        """One normalised vector a text, as rows. The same text always gives the same vector.

        Raises:
            EmbedderUnavailable: no vectors could be made now.
        """
        ...

    async def aclose(self) -> None:
        """Release what the embedder holds."""
        ...


class VectorShelf(Protocol):
    """Where vectors lie that were made once, by a hash that names embedder and text. Losing them costs time alone."""

    async def get(self, keys: Collection[bytes]) -> dict[bytes, Vector]:
        """Those of `keys` that are held. Never raises for a failure: nothing is held then."""
        ...

    async def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep `vectors`, if possible. The longest unused make room when there are too many."""
        ...

    async def aclose(self) -> None:
        """Release connections and files."""
        ...


class Clock(Protocol):
    """The time that decisions are taken by."""

    def now(self) -> float:
        """Seconds since the epoch; may jump, also back. For dates that others wrote: tokens' and grants'."""
        ...

    def elapsed(self) -> float:
        """Seconds since some moment; never jumps. For ages."""
        ...

    async def sleep_until(self, moment: float) -> None:
        """Return at `moment` or later; infinity never comes."""
        ...


class Keys(Protocol):
    """The public keys of all issuers."""

    @property
    def keys(self) -> KeySet:
        """What is known now; without the issuers that have never been reached."""
        ...

    @property
    def version(self) -> int:
        """Grows whenever `keys` changes."""
        ...

    def on_change(self, told: Callable[[], None]) -> None:
        """Have `told` called after every growth of `version`, on the event loop."""
        ...

    async def refresh(self, issuer: str) -> bool:
        """Ask `issuer` for its keys, at most once in 30 s; whether anything changed. Never raises."""
        ...


class Called(Protocol):
    """What a backend answered."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def content_type(self) -> str:
        """The media type."""
        ...

    @property
    def value(self) -> Any:
        """Parsed JSON, or text."""
        ...

    @property
    def raw(self) -> bytes:
        """The body as it came."""
        ...

    @property
    def elapsed(self) -> float:
        """Seconds."""
        ...


class Calls(Protocol):
    """Executes tools. It decides nothing: who may call was decided before."""

    async def call(
        self, tool: PublishedTool, arguments: dict[str, Any], request_id: str, caller: Identity
    ) -> Called:
        """Check `arguments`, send them to the tool's backend, for `caller`, return its answer.

        Raises:
            CallError: with a `code`, a `status` and a `detail` for the caller.
        """
        ...


class Counters(Protocol):
    """Counts calls by account (`counting.verdicts`). One contract suite: `tests/contract/test_counters.py`."""

    async def charge(self, account: str, limits: PublishedLimits, *, lease: float) -> Charge | Shortage:
        """Count one call, all of it or nothing: never more than the limit in any window.

        `lease` is for how many seconds at most it holds its slot, should nobody release it.

        Raises:
            CountersUnavailable: it is not known whether there is room, in bounded time.
        """
        ...

    async def room(self, account: str, limits: PublishedLimits) -> Shortage | None:
        """None if one call more would be counted now; counts nothing.

        Raises:
            CountersUnavailable: not known.
        """
        ...

    async def release(self, charges: Sequence[Charge]) -> None:
        """Free their slots: done when it returns, or soon after if the caller is cancelled. Never raises else."""
        ...

    async def healthy(self) -> None:
        """Return if the store of counters can answer now.

        Raises:
            CountersUnavailable: it cannot.
        """
        ...

    async def aclose(self) -> None:
        """Give back what is held and release connections."""
        ...


class CredentialSink(Protocol):
    """Takes the credentials that the operator pushes."""

    def replace(self, credentials: Credentials) -> None:
        """Hold these and forget all others.

        Raises:
            EpochFenced: the sender no longer leads.
        """
        ...


class Registrar(Protocol):
    """Makes a runtime registration last."""

    async def register(self, tool: PublishedTool, allowed: Callable[[], bool]) -> None:
        """Return when `tool` is durable and in force.

        `allowed` says whether its caller may still register; ask it when the turn has come.

        Raises:
            RegistrationForbidden: it may not any more; nothing has changed.
            AlreadyRegistered: its name is taken.
            RegistrationRefused: it is no valid Tool; nothing has changed.
            RegistrationFailed: it could not be stored and put in force in time.
        """
        ...
