"""Spans of traces, as the services see them: a no-op unless `use` was given a tracer. `main` hands in the one there is.

Attributes carry ids, counts and outcomes: never arguments, tokens, queries or descriptions. Names follow the semantic
conventions of OpenTelemetry where there are some (`http.*`, `server.*`, `gen_ai.*`), else they begin with `toolcrib.`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, Protocol, TypeAlias

from toolcrib.telemetry import logs

log = logging.getLogger(__name__)

Kind: TypeAlias = Literal["internal", "server", "client"]
Value: TypeAlias = str | int | float | bool
Headers: TypeAlias = Mapping[str, str]
"""`traceparent` and `tracestate` of W3C Trace Context, by lower-case name."""
NO_HEADERS: Headers = {}


class Span(Protocol):
    """One step of a trace, while it runs."""

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Add attributes; those that are None are left out."""
        ...

    def rename(self, name: str) -> None:
        """Give it the name that is known only now."""
        ...

    def failed(self, kind: str) -> None:
        """It failed: `error.type`, a code or the name of an exception's class."""
        ...


class Tracer(Protocol):
    """Makes spans and sends them somewhere."""

    def span(
        self, name: str, kind: Kind, attributes: Mapping[str, Value | None], parent: Headers | None
    ) -> AbstractContextManager[Span]:
        """Run a step; it is the current one inside."""
        ...

    def headers(self) -> Headers:
        """What carries the current span to another process."""
        ...

    def ids(self) -> tuple[str, str] | None:
        """(trace id, span id) of the current span, in hexadecimal."""
        ...

    def close(self) -> None:
        """Send what waits, for a bounded time."""
        ...


class _Nothing:
    """A span that nobody records."""

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        pass

    def rename(self, name: str) -> None:
        pass

    def failed(self, kind: str) -> None:
        pass


class _State:
    tracer: Tracer | None = None


_state = _State()
_OFF: AbstractContextManager[Span] = nullcontext(_Nothing())


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's own variables ask for traces: an OTLP endpoint is set and nothing switches them off."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    chosen = {name.strip().lower() for name in environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")}
    if "otlp" not in chosen:
        return False
    return any(environ.get(f"OTEL_EXPORTER_OTLP_{kind}ENDPOINT", "").strip() for kind in ("", "TRACES_"))


def start(environ: Mapping[str, str], service: str, adapter: Callable[[str], Tracer]) -> None:
    """Trace if `environ` asks for it.

    Whatever keeps it from starting is logged; the service runs on.

    Args:
        environ: the process's variables.
        service: the name where OTEL_SERVICE_NAME is not set.
        adapter: makes the tracer, by the name. It is called only if traces are asked for, so only then does it import
            what it needs.
    """
    if not wanted(environ):
        return
    try:
        use(adapter(service))
    except ImportError as error:
        log.error(
            "no traces: OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed (%s); "
            "install toolcrib[otel], or set OTEL_SDK_DISABLED=true",
            error.name or error,
        )
    except Exception as error:
        # a wrong OTEL_ variable must not keep a registry from serving
        log.error("no traces: OpenTelemetry does not start with these OTEL_ variables: %s", error)


def use(tracer: Tracer | None) -> None:
    """Trace with it from now on, and put its ids into log lines; None: stop tracing."""
    _state.tracer = tracer
    logs.hook.ids = None if tracer is None else tracer.ids


def is_on() -> bool:
    """Whether anybody records spans."""
    return _state.tracer is not None


def span(
    name: str,
    attributes: Mapping[str, Value | None] | None = None,
    *,
    kind: Kind = "internal",
    parent: Headers | None = None,
) -> AbstractContextManager[Span]:
    """A step, from here to the end of the `with`. `parent` is another process's or task's, by its headers.

    An exception that leaves the block marks the span as failed, with the `code` of the exception where it has one.
    """
    tracer = _state.tracer
    return _OFF if tracer is None else _recorded(tracer, name, attributes or {}, kind, parent)


@contextmanager
def _recorded(
    tracer: Tracer, name: str, attributes: Mapping[str, Value | None], kind: Kind, parent: Headers | None
) -> Iterator[Span]:
    with tracer.span(name, kind, attributes, parent) as made:
        try:
            yield made
        except BaseException as error:
            code = getattr(error, "code", None)
            made.failed(code if isinstance(code, str) else type(error).__name__)
            raise


def headers() -> Headers:
    """What to send along with a request; empty where nothing is traced."""
    return NO_HEADERS if _state.tracer is None else _state.tracer.headers()


def close() -> None:
    """Send what waits, for a bounded time, and stop tracing."""
    tracer = _state.tracer
    use(None)
    if tracer is not None:
        tracer.close()
