"""The process of `toolcrib memory`: settings, the store, the server, and what deletes old messages."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from toolcrib.errors import SettingsInvalid
from toolcrib.settings import flag
from toolcrib.telemetry import logs
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.example_tools import JWKS_PATH, Address, CallAssertions, keys_at
from toolcrib_cli.example_tools.server import listening, until_signalled
from toolcrib_cli.memory.app import create_app
from toolcrib_cli.memory.settings import SOURCE, MemorySettings
from toolcrib_cli.options import data_folder
from toolcrib_cli.session_store.database import Database, StoreError
from toolcrib_cli.session_store.memories import Memories

log = logging.getLogger(__name__)

_DAY = 86_400.0
_LOOK = 3_600.0
"""Seconds between two deletions of old messages."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `toolcrib memory` until SIGINT or SIGTERM.

    Raises:
        CliError: settings that cannot be used, a store that cannot be opened, or an address that is taken.
    """
    try:
        settings = SOURCE.read(vars(parser().parse_args(argv)), os.environ)
        assertions = _assertions(settings)
    except SettingsInvalid as invalid:
        raise CliError(str(invalid), hint="see `toolcrib memory --help`", code=Exit.USAGE) from None
    try:
        logs.configure(os.environ)
    except ValueError as error:
        raise CliError(str(error), code=Exit.USAGE) from error
    try:
        with _database(settings) as database:
            memories = Memories(database, settings.most)
            asyncio.run(until_signalled(_serving(settings, memories, assertions), _announce))
    except StoreError as error:
        raise CliError(error.message, hint=error.hint) from error
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise CliError(f"cannot listen on {where}: {error.strerror}", hint="choose another --port") from error
    return Exit.OK


def _database(settings: MemorySettings) -> Database:
    return Database.at(settings.store) if settings.store else Database.in_folder(data_folder(settings.data))


@asynccontextmanager
async def _serving(
    settings: MemorySettings, memories: Memories, assertions: CallAssertions
) -> AsyncIterator[Address]:
    async with listening(create_app(memories, assertions), settings.host, settings.port) as address:
        forgetting = asyncio.create_task(_forget(memories, settings.keep_days), name="forget")
        try:
            yield address
        finally:
            forgetting.cancel()
            with suppress(asyncio.CancelledError):
                await forgetting


async def _forget(memories: Memories, days: int) -> None:
    """Delete old messages now and every hour; while the store is away, the next time."""
    while True:
        with suppress(StoreError):
            if gone := await asyncio.to_thread(memories.forget, time.time() - days * _DAY):
                log.info("deleted %d messages older than %d days", gone, days)
        await asyncio.sleep(_LOOK)


def _assertions(settings: MemorySettings) -> CallAssertions:
    url = settings.jwks_url or settings.issuer.rstrip("/") + JWKS_PATH
    try:
        keys = keys_at(url, settings.ca_file)
    except OSError as error:
        raise SettingsInvalid(
            [f"{flag('ca_file')}: {settings.ca_file}: {error.strerror or error}"]
        ) from error
    return CallAssertions(settings.issuer, keys, settings.tool)


def _announce(address: Address) -> None:
    sys.stdout.write(f"memory at {address.url}\n")
    sys.stdout.flush()


def parser() -> argparse.ArgumentParser:
    """Every option."""
    made = argparse.ArgumentParser("toolcrib memory", description="Stores and recalls messages of agents.")
    SOURCE.add_flags(made)
    return made
