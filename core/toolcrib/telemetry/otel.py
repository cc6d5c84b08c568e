"""Traces by OpenTelemetry's SDK, sent by OTLP over HTTP: the only module that imports `opentelemetry`.

It stands in core although it talks to the network, because all three services need it and none may import another;
each `main` hands it to `tracing.start`, and imports it only where the standard variables ask for traces
(docs/decisions/0025-logs-and-traces.md). Endpoint, headers, sampler, resource and batch sizes are the SDK's own
`OTEL_…` variables.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from toolcrib.telemetry.logs import Trouble
from toolcrib.telemetry.tracing import Headers, Kind, Value
from toolcrib.version import __version__

log = logging.getLogger(__name__)

FLUSH_SECONDS = 3.0
"""How long the end of a process waits for a collector at most."""
_KINDS = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_PROPAGATOR = TraceContextTextMapPropagator()


def tracer(service: str) -> OtelTracer:
    """A tracer with the settings of the process's `OTEL_…` variables.

    Raises:
        Exception: the SDK's own, for variables that it cannot use.
    """
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if (protocol := os.environ.get(variable, "http/protobuf")) != "http/protobuf":
            log.warning("%s=%s is not supported; traces are sent by http/protobuf", variable, protocol)
    heard = _Heard()
    library = logging.getLogger("opentelemetry")
    library.handlers[:], library.propagate = [heard], False
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    # in a cluster the host's name is the pod's
    resource = Resource({SERVICE_VERSION: __version__, "host.name": socket.gethostname()}).merge(resource)
    # the end of the process waits for a collector no longer than `close` does
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    # a bounded queue and a thread of its own: no request ever waits for the collector
    provider.add_span_processor(BatchSpanProcessor(_Exporter(OTLPSpanExporter(), heard)))
    return OtelTracer(provider)


class OtelTracer:
    """A `tracing.Tracer`."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("toolcrib", __version__)

    @contextmanager
    def span(
        self, name: str, kind: Kind, attributes: Mapping[str, Value | None], parent: Headers | None
    ) -> Iterator[_Span]:
        """Run a step. Exceptions are not recorded: their texts may hold what must not leave the process."""
        context: Context | None = None if parent is None else _PROPAGATOR.extract(dict(parent), Context())
        with self._tracer.start_as_current_span(
            name,
            context=context,
            kind=_KINDS[kind],
            attributes={k: v for k, v in attributes.items() if v is not None},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield _Span(span)

    def headers(self) -> Headers:
        """What carries the current span to another process."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier

    def ids(self) -> tuple[str, str] | None:
        """(trace id, span id) of the current span."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)

    def close(self) -> None:
        """Send what waits, for `FLUSH_SECONDS` at most."""
        # the SDK's own timeout does not bound a request that hangs
        ending = threading.Thread(target=self._provider.shutdown, name="otel-shutdown", daemon=True)
        ending.start()
        ending.join(FLUSH_SECONDS)


class _Span:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        self._span.set_attributes({k: v for k, v in attributes.items() if v is not None})

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def failed(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(StatusCode.ERROR)


class _Heard(logging.Handler):
    """Keeps the last complaint of the SDK, which says the same again with every batch."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


class _Exporter(SpanExporter):
    """Says once that the collector does not take spans, and once that it does again."""

    def __init__(self, inner: SpanExporter, heard: _Heard) -> None:
        self._inner, self._heard = inner, heard
        self._trouble = Trouble(log)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._heard.last = ""
        try:
            result = self._inner.export(spans)
        except Exception as error:
            self._heard.last, result = type(error).__name__, SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._trouble.over("traces are sent again")
        else:
            self._trouble.failed("traces cannot be sent and are dropped: %s", self._heard.last or "no reason")
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)
