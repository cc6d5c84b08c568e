"""The outbox: while this operator leads, it empties that of every replica that is up to date.

Runtime registrations are off unless switched on (DESIGN §6, Runtime registration). What is created here is an object like
any other: the World hears of it, and the loop publishes it. `access` answers access requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from toolcrib.errors import EpochFenced
from toolcrib.telemetry import logs
from toolcrib.wire.outbox import Outbox, OutboxAck, OutboxAcks, OutboxEntry
from toolcrib.wire.publish import Revision
from toolcrib_operator.errors import ClusterUnavailable, Conflict, Gone, Invalid, ReplicaUnavailable
from toolcrib_operator.kinds.registration import is_taken, manifest_of
from toolcrib_operator.ports import Creator, OutboxChannel
from toolcrib_operator.replicas.access import AccessRequests
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.settings import RegistrationSettings
from toolcrib_operator.timers import Backoff, wait
from toolcrib_operator.world import World

log = logging.getLogger(__name__)

REQUEST_ID = "toolcrib.dev/request-id"
"""Annotation: the request that asked for the registration, as the logs of registry and operator name it."""
_LATE = "The operator received the registration too late. Nothing changed; try again."
_OFF = "The operator does not serve registrations. Nothing changed; start it with --runtime-registration."
_AWAY = "The API server did not confirm that the Tool was created. Try again."


class RegistrationIntake:
    """Creates the Tools that callers of `POST /tools/register` wait for."""

    def __init__(
        self,
        world: World,
        publisher: Publisher,
        creator: Creator,
        channel: Callable[[str], OutboxChannel],
        published: Callable[[int], Awaitable[Revision]],
        *,
        settings: RegistrationSettings,
        registers: bool = True,
        desk: AccessRequests | None = None,
    ) -> None:
        """
        Args:
            world: is told what was created, before any watch.
            publisher: knows the replicas, and whether this operator may act.
            creator: creates objects.
            channel: the outbox of a replica, by its name.
            published: waits until a change of `world` is confirmed by every replica (`Loop.published`).
            settings: the one namespace, and times.
            registers: whether registrations are served; else each is refused at once.
            desk: answers access requests; None: they are left alone.
        """
        self._world, self._publisher, self._creator = world, publisher, creator
        self._channel, self._published, self._settings = channel, published, settings
        self._registers, self._desk = registers, desk
        self.problems: dict[str, str] = {}
        self.created = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Serve every replica that the publisher knows until `stop`. An unexpected error is raised."""
        moved = asyncio.Event()
        self._publisher.subscribe(moved.set)
        stopped = asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda _: moved.set())
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while not stop.is_set():
                moved.clear()
                names = {link.replica.name for link in self._publisher.links}
                for name in set(tasks) - names:
                    tasks.pop(name).cancel()
                    self.problems.pop(name, None)
                for name in names - set(tasks):
                    tasks[name] = asyncio.create_task(self._serve(name, stop), name=f"outbox of {name}")
                for task in tasks.values():
                    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                        raise error
                await wait(moved, 1.0)
        finally:
            stopped.cancel()
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(stopped, *tasks.values(), return_exceptions=True)

    async def _serve(self, name: str, stop: asyncio.Event) -> None:
        channel, backoff = self._channel(name), Backoff(*self._settings.backoff)
        trouble, asked = logs.Trouble(log), 0
        epoch = self._publisher.epoch
        while not stop.is_set():
            # before its first snapshot a replica can have admitted nobody
            if not self._publisher.may_act() or self._publisher.confirmed(name) is None:
                await wait(stop, 0.2)
                continue
            started, asked = time.monotonic(), asked + 1
            logs.request_id.set(f"op-{epoch}-outbox-{asked}")
            try:
                found = await channel.outbox(epoch, self._settings.wait)
                if acks := (*await self._settle(found.entries), *await self._asked(found)):
                    await channel.acknowledge(OutboxAcks(epoch=epoch, acks=acks))
            except EpochFenced as error:
                self._publisher.fenced(error)
                return
            except ReplicaUnavailable as error:
                trouble.failed("the outbox cannot be read: %s", error, extra=logs.about(replica=name))
                self.problems[name] = str(error)
                await wait(stop, backoff.next())
                continue
            self.problems.pop(name, None)
            trouble.over("the outbox is read again", extra=logs.about(replica=name))
            backoff.reset()
            if not acks and time.monotonic() - started < 0.1:
                await wait(stop, 0.2)  # it did not wait: it is stopping

    async def _asked(self, found: Outbox) -> tuple[OutboxAck, ...]:
        """The answers to access requests."""
        if self._desk is None:
            return ()
        now, acks = time.monotonic(), []
        for entry in found.access:
            with logs.working_on(entry.request_id or logs.request_id.get()):
                acks.append(await self._desk.settle(entry, now + entry.seconds))
        return tuple(acks)

    async def _settle(self, entries: tuple[OutboxEntry, ...]) -> tuple[OutboxAck, ...]:
        """Create what is asked for; return when every replica has it, or has had time enough."""
        now, before = time.monotonic(), self._world.change
        acks, change = [], before
        for entry in entries:
            # the id of the caller's request, which the registry logs too
            with logs.working_on(entry.request_id or logs.request_id.get()):
                ack, change = await self._create(entry, now + entry.seconds, change)
            acks.append(ack)
        if change != before:
            try:
                async with asyncio.timeout(self._settings.in_force):
                    await self._published(change)
            except TimeoutError:
                log.warning("a registration is created, but not every replica has confirmed it yet")
        return tuple(acks)

    async def _create(self, entry: OutboxEntry, deadline: float, change: int) -> tuple[OutboxAck, int]:
        """One entry's answer, and the change of the World that its Tool is in."""

        def ack(outcome: str, detail: str = "") -> tuple[OutboxAck, int]:
            return OutboxAck.model_validate(
                {"id": entry.id, "outcome": outcome, "detail": detail[:500]}
            ), change

        namespace = self._settings.namespace
        if not self._registers:
            return ack("failed", _OFF)
        about = logs.about_object("Tool", entry.tool.tool_id)
        try:
            manifest = manifest_of(entry.tool, namespace)
        except ValueError as error:
            return ack("refused", str(error))
        if logs.is_sane_request_id(entry.request_id):
            manifest["metadata"].setdefault("annotations", {})[REQUEST_ID] = entry.request_id
        if is_taken(entry.tool, self._world.all("Tool")):
            return ack("exists")
        if not self._publisher.may_act() or time.monotonic() >= deadline:
            return ack("failed", _LATE)
        try:
            created = await self._creator.create("Tool", manifest)
        except Conflict:
            return ack("exists")
        except Invalid as error:
            return ack("refused", str(error))
        except Gone:
            log.warning("registrations fail: there is no namespace %s; create it", namespace, extra=about)
            return ack(
                "failed",
                f"The namespace {namespace} does not exist. Nothing changed; create it, then register again.",
            )
        except ClusterUnavailable as error:
            log.warning("the registration failed: %s", error, extra=about)
            return ack("failed", _AWAY)
        self.created += 1
        log.info("created for a registration", extra=about)
        change = self._world.upsert("Tool", created)
        return ack("created")
