"""A collector of traces on loopback: takes OTLP over HTTP, decodes the protobuf, keeps the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stub_server import Answer, Asked, answering


@dataclass(frozen=True, slots=True)
class Received:
    """One span as it arrived; ids in hexadecimal, `parent` empty for a root."""

    service: str
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    failed: bool


@dataclass
class Collector:
    """Where to send spans (`url` is OTEL_EXPORTER_OTLP_ENDPOINT), and those that came."""

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    _came: threading.Condition = field(default_factory=threading.Condition)

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        """Decode one request."""
        request = ExportTraceServiceRequest.FromString(body)
        with self._came:
            self.headers.append(headers)
            for batch in request.resource_spans:
                about = _plain(batch.resource.attributes)
                self.resources.append(about)
                for scope in batch.scope_spans:
                    self.spans += [
                        Received(
                            about["service.name"], s.name, s.kind, s.trace_id.hex(), s.span_id.hex(),
                            s.parent_span_id.hex(), _plain(s.attributes), s.status.code == 2,
                        )
                        for s in scope.spans
                    ]  # fmt: skip
            self._came.notify_all()

    def wait_for(self, service: str, name: str, timeout: float = 60) -> Received:
        """The first span of that service and name."""

        def found() -> Received | None:
            return next((s for s in self.spans if (s.service, s.name) == (service, name)), None)

        with self._came:
            assert self._came.wait_for(lambda: found() is not None, timeout), [
                (s.service, s.name) for s in self.spans
            ]
        span = found()
        assert span is not None
        return span


def _plain(attributes: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value") or "string_value") for a in attributes}


@contextmanager
def collecting(hang: threading.Event | None = None) -> Iterator[Collector]:
    """A collector; with `hang` it answers nobody before that is set."""
    collector = Collector()

    def answer(asked: Asked) -> Answer:
        if hang is not None:
            hang.wait(60)
        else:
            assert asked.path == "/v1/traces"
            collector.take(asked.body, dict(asked.headers))
        return Answer(headers={"content-type": "application/x-protobuf"})

    with answering(answer) as port:
        collector.url = f"http://127.0.0.1:{port}"
        try:
            yield collector
        finally:
            if hang is not None:
                hang.set()
