"""Runtime registrations, the operator's side: nothing the registry asks for is believed, and nothing is overwritten."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from manifests import tool
from operator_harness import MemoryReplica
from published import tool as published_tool
from toolcrib import names
from toolcrib.wire.backends import PublishedAuth, PublishedBackend, SecretReference
from toolcrib.wire.outbox import OutboxEntry
from toolcrib.wire.publish import PublishedTool
from toolcrib_operator.adapters.memory import FixedReplicas, MemoryWriter
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, Invalid
from toolcrib_operator.kinds.registration import manifest_of
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.loop import Loop
from toolcrib_operator.options import parse
from toolcrib_operator.replicas.index import IndexSync
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.replicas.registrations import RegistrationIntake
from toolcrib_operator.settings import RegistrationSettings
from toolcrib_operator.world import World
from waiting import until

pytestmark = pytest.mark.anyio
RUNTIME = "toolcrib-runtime"


def asked(name: str = "fx", server: str | None = None, **fields: Any) -> PublishedTool:
    """A registration as a replica hands it over."""
    made = {"uid": "runtime", "name": name, "server": server, "scopes": ("fx:use",), "source": "runtime"}
    return published_tool(f"{RUNTIME}/{names.object_name(server, name)}", **{**made, **fields})


class Objects:
    """Creates in memory, or fails as it is told."""

    def __init__(self) -> None:
        self.made: list[Mapping[str, Any]] = []
        self.error: Exception | None = None

    async def create(self, kind: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        self.made.append(manifest)
        metadata = {
            **manifest["metadata"],
            "uid": f"u{len(self.made)}",
            "resourceVersion": "5",
            "generation": 1,
        }
        return {**manifest, "metadata": metadata}


class Parts:
    """An operator in memory that serves two replicas."""

    def __init__(self, in_force: float) -> None:
        self.world, self.objects = World(), Objects()
        self.replicas = [MemoryReplica("a"), MemoryReplica("b")]
        self.leads = True
        self.publisher = Publisher(3, FixedReplicas(*self.replicas), may_act=lambda: self.leads)
        index_sync = IndexSync(self.publisher)
        self.loop = Loop(self.world, self.publisher, index_sync, MemoryWriter(self.world))
        by_name = {r.name: r for r in self.replicas}
        self.intake = RegistrationIntake(
            self.world, self.publisher, self.objects, by_name.__getitem__, self.loop.published,
            settings=RegistrationSettings(wait=0.2, in_force=in_force),
        )  # fmt: skip

    async def answer(self, wanted: PublishedTool, replica: int = 0, seconds: float = 60) -> tuple[str, str]:
        """The outcome and detail of one registration."""
        asker = self.replicas[replica]
        before = len(asker.acks)
        asker.wanted.append(OutboxEntry(id=f"{replica}-{before}", tool=wanted, seconds=seconds))
        await until(lambda: len(asker.acks) > before)
        return asker.acks[-1].outcome, asker.acks[-1].detail


@asynccontextmanager
async def running(in_force: float = 60) -> AsyncIterator[Parts]:
    """`in_force` is how long an answer waits for every replica."""
    parts, stop = Parts(in_force), asyncio.Event()
    for kind in WATCHED:
        parts.world.replace(kind, [])
    tasks = [asyncio.create_task(parts.loop.run(stop)), asyncio.create_task(parts.intake.run(stop))]
    try:
        await until(lambda: parts.publisher.revision is not None)
        yield parts
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def test_the_answer_comes_when_every_replica_has_the_tool() -> None:
    async with running() as parts:
        assert await parts.answer(asked(server="ecb"), replica=1) == ("created", "")
        (tool_id,) = (asked(server="ecb").tool_id,)
        assert [list(r.snapshot.tools) for r in parts.replicas] == [[tool_id]] * 2
        assert parts.replicas[0].snapshot.tools[tool_id].source == "runtime"
        assert parts.objects.made[0]["metadata"]["labels"] == {"toolcrib.dev/source": "runtime"}
        assert parts.intake.created == 1


async def test_a_replica_that_is_away_delays_the_answer_no_longer_than_it_may() -> None:
    async with running(in_force=0.3) as parts:
        parts.replicas[1].down = True
        assert (await parts.answer(asked()))[0] == "created"
        assert asked().tool_id in parts.replicas[0].snapshot.tools
        parts.replicas[1].down = False
        await until(lambda: asked().tool_id in parts.replicas[1].snapshot.tools)
        await until(lambda: not parts.intake.problems)


async def test_a_name_that_any_object_of_the_namespace_has_is_taken() -> None:
    async with running() as parts:
        parts.world.upsert("Tool", tool("mine", RUNTIME, name="fx"))
        parts.world.upsert("Tool", tool("fx", "heist"))
        assert (await parts.answer(asked()))[0] == "exists"
        assert (await parts.answer(asked(server="ecb")))[0] == "created"
        assert (await parts.answer(asked(server="ecb"), replica=1))[0] == "exists"
        assert len(parts.objects.made) == 1


@pytest.mark.parametrize(
    ("error", "outcome", "says"),
    [
        (Conflict("there"), "exists", ""),
        (Invalid("spec.scopes: too many"), "refused", "spec.scopes: too many"),
        (
            Gone("no such namespace"),
            "failed",
            f"The namespace {RUNTIME} does not exist. Nothing changed; create it, then register again.",
        ),
        (ClusterUnavailable("POST /apis/secret-inside"), "failed", "The API server did not confirm"),
    ],
)
async def test_what_the_api_server_says_decides(error: Exception, outcome: str, says: str) -> None:
    async with running() as parts:
        parts.objects.error = error
        found, detail = await parts.answer(asked())
        assert found == outcome
        assert detail.startswith(says)
        assert "secret-inside" not in detail
        parts.objects.error = None
        assert (await parts.answer(asked()))[0] == "created"


async def test_nothing_is_begun_for_a_caller_who_has_gone() -> None:
    async with running() as parts:
        assert (await parts.answer(asked(), seconds=0))[0] == "failed"
        assert parts.objects.made == []


async def test_who_does_not_lead_takes_nothing() -> None:
    async with running() as parts:
        assert (await parts.answer(asked("first")))[0] == "created"
        parts.leads = False
        # a request that was open already may still bring something; it is not created
        parts.replicas[0].wanted.append(OutboxEntry(id="x", tool=asked(), seconds=60))
        await asyncio.wait_for(_idle(parts), 60)
        assert len(parts.objects.made) == 1


async def _idle(parts: Parts) -> None:
    """Return when the requests that were open have ended."""
    await until(lambda: not parts.replicas[0].asking and not parts.replicas[1].asking)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tool_id": "heist/calculator", "namespace": "heist"}, "another namespace"),
        ({"tool_id": f"{RUNTIME}/calculator"}, "another name"),
        ({"scopes": ("registry:write",)}, "registry"),
        ({"scopes": ()}, "scopes"),
        ({"input_schema": {"$ref": "http://169.254.169.254/"}}, "ref"),
        ({"output_schema": {"$ref": "file:///etc/passwd"}}, "ref"),
        ({"description": "adds\u2066"}, "U\\+2066"),
        ({"input_schema": {"type": "object", "$comment": "\U000e0041"}}, "inputSchema/\\$comment"),
        (
            {"backend": PublishedBackend(service_namespace="kube-system", service_name="x", service_port=1)},
            "URL",
        ),
        (
            {
                "backend": PublishedBackend(
                    url="http://example.com/",
                    auth=PublishedAuth(
                        type="Bearer", secret=SecretReference(namespace=RUNTIME, name="s", key="k")
                    ),
                )
            },
            "credentials",
        ),
    ],
)
def test_a_registry_that_asks_for_more_than_it_may_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        manifest_of(asked(**change), RUNTIME)


def test_registrations_are_off_unless_switched_on() -> None:
    urls = ["--registry-url", "http://r"]
    assert parse(urls, {}).registration is None
    on = parse([*urls, "--runtime-registration", "--runtime-namespace", "elsewhere"], {}).registration
    assert on is not None
    assert on.namespace == "elsewhere"
    by_variable = {"TOOLCRIB_OPERATOR_RUNTIME_REGISTRATION": "true"}
    assert parse(urls, by_variable).registration is not None
    assert parse([*urls, "--no-runtime-registration"], by_variable).registration is None
