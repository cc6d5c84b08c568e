"""A cluster in memory as the operator sees it, for comparing predictions with what really comes out.

It fills in what an API server fills in (uid, generation, resourceVersion, creationTimestamp), feeds the operator's world
as a watch does, and applies what the operator publishes to a snapshot, step by step. Callers are verified tokens.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterable
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

import kubectl_apply
from access_worlds import CLUSTER_ISSUER, OAUTH, SCOPES, Manifest, ref_of
from toolcrib.errors import InvalidManifest
from toolcrib.identity import Identity, Issuer, KeySet, ScopesPolicy, check_issuers, verify
from toolcrib.resources import KINDS, parse
from toolcrib.snapshot import Snapshot
from toolcrib.wire.publish import Publish, Revision
from toolcrib_cli.three_way_merge import LiveWorld
from toolcrib_operator.assessment import Assessor
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.settings import LoopSettings
from toolcrib_operator.world import World

_KEY = ec.generate_private_key(ec.SECP256R1())
ISSUERS = check_issuers(
    [
        Issuer(issuer=CLUSTER_ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.BINDINGS, cluster=True),
        Issuer(issuer=OAUTH, audience=("toolcrib",), scopes=ScopesPolicy.INTERSECTION),
    ]
)
KEYS: KeySet = {iss: {"k": _KEY.public_key()} for iss in ISSUERS}


class ApiObjects:
    """Objects with an API server's metadata, and the snapshot that the operator makes of them."""

    def __init__(self, trusted: tuple[str, ...] = LoopSettings.trusted_namespace_labels) -> None:
        self.objects: dict[str, Manifest] = {}
        self.snapshot = Snapshot()
        self._world = World()
        self._assessor = Assessor(self._world, LoopSettings(trusted_namespace_labels=trusted, services=False))
        self._versions = itertools.count(1)
        self._started = False

    def apply(self, manifests: Iterable[Manifest], deleted: Iterable[str] = ()) -> None:
        """Delete and apply, as kubectl does, and let the operator do its turn. What is invalid then stays as it is."""
        for ref in deleted:
            gone = self.objects.pop(ref)
            self._world.remove(gone["kind"], ref.split("/", 1)[1], str(next(self._versions)))
        for manifest in manifests:
            held = self.objects.get(ref_of(manifest))
            self._write(kubectl_apply.apply(manifest, held) if held else kubectl_apply.modified(manifest))
        if not self._started:
            self._list()
        self._turn()

    def patch(self, ref: str, change: Manifest, *, unapplied: bool = False) -> bool:
        """Patch a live object, as `kubectl patch --type merge`; whether the API server takes it.

        `unapplied` takes kubectl's annotation away, as if it had been made by something else.
        """
        new = kubectl_apply.patch(self.objects[ref], change)
        if unapplied:
            new["metadata"].pop("annotations", None)
        taken = self._write(new)
        self._turn()
        return taken

    def world(self) -> LiveWorld:
        """A world of its own, as somebody who lists everything now reads it."""
        found = LiveWorld(WATCHED)
        self._fill(found)
        return found

    def uid(self, ref: str) -> str | None:
        """The uid of an object, if it is there."""
        held = self.objects.get(ref)
        return None if held is None else str(held["metadata"]["uid"])

    def _write(self, new: Manifest) -> bool:
        if new["kind"] in KINDS:
            try:
                parse({k: v for k, v in new.items() if k != "status"})
            except InvalidManifest:
                return False
        stored = self._store(new)
        if self._started:
            self._world.upsert(stored["kind"], stored)
        return True

    def _store(self, manifest: Manifest) -> Manifest:
        ref, new = ref_of(manifest), copy.deepcopy(manifest)
        version, held = next(self._versions), self.objects.get(ref)
        metadata = new["metadata"]
        if held is None:
            seconds = f"{version // 3600:02}:{version // 60 % 60:02}:{version % 60:02}"
            metadata |= {
                "uid": f"uid-{version}",
                "generation": 1,
                "creationTimestamp": f"2026-01-01T{seconds}Z",
            }
        else:
            metadata["generation"] = held["metadata"]["generation"] + (held.get("spec") != new.get("spec"))
        if new["kind"] == "Namespace":
            metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
        metadata["resourceVersion"] = str(version)
        self.objects[ref] = new
        return new

    def _list(self) -> None:
        self._fill(self._world)
        self._started = True

    def _fill(self, world: World) -> None:
        for kind in world.unlisted:
            world.replace(
                kind, [o for o in self.objects.values() if o["kind"] == kind], str(next(self._versions))
            )

    def _turn(self) -> None:
        dirty, _ = self._world.take()
        self._assessor.judge(self._assessor.expand(dirty))
        batch, base = self._assessor.batch(), self.snapshot.revision
        seq = 1 if base is None else base.seq + 1
        self.snapshot = self.snapshot.apply(
            Publish(
                base=base, to=Revision(epoch=1, seq=seq), tools=tuple(batch.tools), bindings=tuple(batch.bindings),
                accounts=None if batch.accounts is None else tuple(batch.accounts), removed=batch.removed,
            )
        )  # fmt: skip

    def identity(self, subject: str, now: float, scopes: Iterable[str] = SCOPES) -> Identity | None:
        """What a real token of the subject proves; None where nobody could get one."""
        uid = self.uid(f"ServiceAccount/{subject.partition('/')[2]}")
        if uid is None and subject.startswith(("ServiceAccount", "Agent")):
            return None
        return _proven(subject, uid, now, tuple(scopes))


@functools.lru_cache(maxsize=4096)
def _proven(subject: str, uid: str | None, now: float, scopes: tuple[str, ...]) -> Identity:
    claims: dict[str, Any] = {"aud": "toolcrib", "exp": now + 600, "iat": now, "scope": " ".join(scopes)}
    kind, _, rest = subject.partition("/")
    if kind in ("ServiceAccount", "Agent"):
        namespace, name = rest.split("/")
        account = {"serviceaccount": {"name": name, "uid": uid}, "namespace": namespace}
        claims |= {"iss": CLUSTER_ISSUER, "sub": f"system:serviceaccount:{namespace}:{name}"}
        claims["kubernetes.io"] = account
    else:
        proofs: dict[str, dict[str, Any]] = {
            "OAuthClient": {"sub": f"client-{rest}", "azp": rest},
            "User": {"sub": rest},
            "Group": {"sub": "somebody", "groups": [rest]},
        }
        claims |= {"iss": OAUTH, **proofs[kind]}
    token = jwt.encode(claims, _KEY, algorithm="ES256", headers={"kid": "k"})
    return verify(token, issuers=ISSUERS, keys=KEYS, now=now)
