"""Makes the decision log that the settings ask for."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from toolcrib.identity import Issuer
from toolcrib_registry.audit import files, keys
from toolcrib_registry.audit.folding import Folding
from toolcrib_registry.audit.log import DecisionLog
from toolcrib_registry.audit.writer import Counts, Writer
from toolcrib_registry.clock import Clock
from toolcrib_registry.settings_sections import Audit

log = logging.getLogger(__name__)


def opened(
    settings: Audit, replica: str, clock: Clock, counts: Counts, issuers: Iterable[Issuer] = ()
) -> DecisionLog:
    """The log; one that does nothing where no path is set.

    Raises:
        KeyFileError: the key cannot be used.
        OSError: the file cannot be opened, or another process writes it.
    """
    if settings.path is None:
        return DecisionLog(clock)
    key = keys.read(settings.key_file)
    if not key.keyed:
        log.warning(
            "the decision log has no key (audit.key_file): anyone with write access to the file can "
            "rewrite it, and arguments are not recorded"
        )
    made = DecisionLog(
        clock,
        key=key,
        arguments=settings.arguments,
        strict=settings.mode == "strict",
        strict_seconds=settings.strict_seconds,
        refusals=Folding(interval=settings.fold_seconds),
        reads=Folding(interval=settings.fold_seconds, keys=20_000, fold=False),
    )
    said = {
        "mode": settings.mode,
        "arguments": settings.arguments if key.keyed else _unkeyed(settings.arguments),
    }
    writer = Writer(
        files.open_target(settings.path, settings.max_bytes, settings.keep),
        key,
        replica,
        clock.now,
        counts,
        made.due,
        settings=said,
        issuers=issuers,
        capacity=settings.queue,
        elapsed=clock.elapsed,
    )
    made.attach(writer)
    return made


def _unkeyed(arguments: str) -> str:
    return "omit" if arguments == "hash" else arguments
