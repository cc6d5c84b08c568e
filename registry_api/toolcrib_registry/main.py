"""`toolcrib-registry`: reads the environment, composes a registry, serves it until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import uvloop

from toolcrib import process
from toolcrib.errors import SettingsInvalid
from toolcrib.telemetry import logs, tracing
from toolcrib.version import __version__
from toolcrib_registry.compose import Registry, build
from toolcrib_registry.http import serving
from toolcrib_registry.http.certificates import ServedCertificate
from toolcrib_registry.search.errors import SearchError
from toolcrib_registry.settings import SOURCE, RegistrySettings, from_env

__all__ = ["Registry", "build", "main", "run"]
log = logging.getLogger(__name__)

EXIT_USAGE = 2
EXIT_FAILED = 1
_FLAGS = ("host", "port", "admin_host", "admin_port", "allow_dev_issuer")
"""Settings that have a flag of their own."""


class Broken(Exception):
    """The process must not go on serving; the message says why."""


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Serve; 0 after a stop that was asked for, 1 if it could not start or broke, 2 for wrong settings."""
    environ = os.environ if environ is None else environ
    arguments = parser().parse_args(argv)
    try:
        logs.configure(environ, level=arguments.log_level)
    except ValueError as error:
        print(f"toolcrib-registry: {error}", file=sys.stderr)
        return EXIT_USAGE
    try:
        settings = _settings(arguments, environ)
        settings.refuse_dev_issuers()
    except SettingsInvalid as error:
        print(f"toolcrib-registry: {error}", file=sys.stderr)
        return EXIT_USAGE
    if settings.useless:
        log.warning("%s", settings.useless)
    tracing.start(environ, "toolcrib-registry", _tracer)
    try:
        uvloop.run(run(settings))
    except (OSError, ValueError, SearchError, Broken) as error:
        log.error("the registry cannot run: %s", error)
        return EXIT_FAILED
    finally:
        tracing.close()
    return 0


def _tracer(service: str) -> tracing.Tracer:
    """OpenTelemetry's; imported only where traces are asked for."""
    from toolcrib.telemetry import otel

    return otel.tracer(service)


async def run(settings: RegistrySettings) -> None:
    """Serve the listeners of a composed registry until a signal comes; one that comes during the start ends it, too.

    A container's first process is told nothing of a signal that it has no handler for: it would go on and serve.

    Raises:
        Broken: a part without which nothing may be served has ended; nothing is waited for.
    """
    stop, at_once, broken = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def give_up() -> None:
        for event in (broken, stop, at_once):
            event.set()

    with serving.stop_signals(stop, at_once):
        certificates = [
            ServedCertificate.of(name, tls)
            for name, tls in (
                ("agents", settings.tls),
                ("metrics", settings.metrics.tls),
                ("admin", settings.admin_tls),
            )
        ]
        registry = await _unless(stop, _started(settings, give_up))
        if registry is not None:
            try:
                await _serve(registry, certificates, stop, at_once)
            finally:
                await registry.aclose()
        if broken.is_set():
            raise Broken("calls could no longer be cut when their grant is revoked")
        if registry is None:
            log.info("stopped during the start")


async def _started(settings: RegistrySettings, on_broken: Callable[[], None]) -> Registry:
    registry = await build(settings)
    try:
        await registry.start(on_broken)
    except BaseException:
        await registry.aclose()
        raise
    return registry


async def _unless(stop: asyncio.Event, starting: Coroutine[Any, Any, Registry]) -> Registry | None:
    """What `starting` gives; None if `stop` was set before."""
    task, stopped = asyncio.create_task(starting), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        return None if task.cancelled() else task.result()
    finally:
        stopped.cancel()


async def _serve(
    registry: Registry,
    certificates: Sequence[ServedCertificate | None],
    stop: asyncio.Event,
    at_once: asyncio.Event,
) -> None:
    settings = registry.deps.settings
    for certificate in certificates:
        if certificate is not None:
            registry.deps.metrics.observe_certificate(certificate.name, partial(_expiry, certificate))
    agents, metrics, admin = certificates
    listeners = [
        serving.Listener(registry.agents, settings.host, settings.port, agents, door=registry.door("agents")),
        serving.Listener(
            registry.metrics,
            settings.metrics.host,
            settings.metrics.port,
            metrics,
            door=registry.door("metrics"),
        ),
        serving.Listener(
            registry.admin, settings.admin_host, settings.admin_port, admin, door=registry.door("admin")
        ),
    ]
    async with process.looked_after():
        await serving.serve(
            listeners,
            draining=registry.deps.state.drain,
            stopping=registry.deps.state.close,
            stop=stop,
            at_once=at_once,
            signals=False,
            drain_seconds=settings.drain_seconds,
            finish_seconds=settings.finish_seconds,
            ready=lambda ports: log.info("agents on port %d, metrics on port %d, admin on port %d", *ports),
        )


def _expiry(certificate: ServedCertificate) -> float:
    return certificate.expires_at


def _settings(arguments: argparse.Namespace, environ: Mapping[str, str]) -> RegistrySettings:
    given = vars(arguments)
    settings = from_env(environ, arguments.config, {n: given[n] for n in _FLAGS if given[n] is not None})
    backends = dict(settings.backends)
    for text in arguments.backend:
        service, found, place = text.partition("=")
        if not found or service.count("/") != 1 or ":" not in place:
            raise SettingsInvalid([f"--backend {text}: expected namespace/service=host:port"])
        backends[service] = place
    listener = {"host": arguments.metrics_host, "port": arguments.metrics_port}
    metrics = settings.metrics.model_copy(update={k: v for k, v in listener.items() if v is not None})
    return settings.model_copy(update={"backends": backends, "metrics": metrics})


def parser() -> argparse.ArgumentParser:
    """Every option."""
    made = argparse.ArgumentParser(
        prog="toolcrib-registry",
        description="The registry of Toolcrib: discovery, search and calls for agents.",
        epilog="Settings come from the configuration file and from TOOLCRIB_* variables; see "
        "docs/reference/settings.md.",
    )
    made.add_argument("--config", metavar="FILE", help="YAML file with settings. [TOOLCRIB_CONFIG]")
    SOURCE.add_flags(made, only=_FLAGS)
    made.add_argument("--metrics-host", help="Address of the metrics listener.")
    made.add_argument("--metrics-port", type=int, help="Its port; 0 takes a free one.")
    made.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAMESPACE/SERVICE=HOST:PORT",
        help="Address of a Service outside a cluster. Repeatable.",
    )
    levels = ["DEBUG", "INFO", "WARNING", "ERROR"]
    made.add_argument(
        "--log-level", choices=levels, help="DEBUG, INFO, WARNING or ERROR. [TOOLCRIB_LOG_LEVEL; INFO]"
    )
    made.add_argument(
        "--version",
        action="version",
        version=f"toolcrib-registry {__version__}",
        help="Print the version and exit.",
    )
    return made


if __name__ == "__main__":
    sys.exit(main())
