"""A replica that is asked to probes backends: it connects through the guard, sends nothing, and says what it found."""

import contextlib
import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from realparts.processes import free_port, wait_until
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.probes import BackendReport, ProbeOutcome, ProbeRequest
from toolcrib_registry.adapters.outbound import touch

ROUTE = "/v1/admin/backends"


class Listener:
    """Accepts connections and counts what comes: connections, and bytes after the TLS handshake, if there is one."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.connections = self.received = 0
        self.ended = threading.Semaphore(0)
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(30)
                    if self._context is not None:
                        connection = self._context.wrap_socket(connection, server_side=True)
                    with connection:
                        while data := connection.recv(4096):
                            self.received += len(data)
                self.ended.release()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextlib.contextmanager
def listening(context: ssl.SSLContext | None = None) -> Iterator[Listener]:
    listener = Listener(context)
    thread = threading.Thread(target=listener.serve, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        listener.close()
        thread.join(60)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of 127.0.0.1 that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    made = made.add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
    )
    certificate = made.not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    pem = Path(tmp_path_factory.mktemp("tls")) / "server.pem"
    plain = serialization.NoEncryption()
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return pem


@pytest.fixture(scope="module")
def self_signed(certificate: Path) -> ssl.SSLContext:
    """A server's TLS with that certificate; nobody trusts it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def asked(r: RunningRegistry, *, epoch: int = 1, every: float = 60) -> BackendReport:
    body = ProbeRequest(epoch=epoch, every=every).model_dump_json()
    answer = r.admin("POST", ROUTE, content=body)
    assert answer.status_code == 200, answer.text
    return BackendReport.model_validate(answer.json())


def outcomes(r: RunningRegistry) -> dict[str, ProbeOutcome]:
    """What is found of each backend, once something is found of all."""

    def all_known() -> bool:
        report = asked(r)
        return report.looked and all(row.outcome is not None for row in report.backends)

    wait_until(all_known)
    return {row.backend: row.outcome for row in asked(r).backends if row.outcome is not None}


def test_a_backend_is_connected_to_and_gets_no_byte(self_signed: ssl.SSLContext) -> None:
    closed = free_port()
    with listening() as plain, listening(self_signed) as tls:
        urls = {
            "open": f"http://127.0.0.1:{plain.port}",
            "closed": f"http://127.0.0.1:{closed}",
            "untrusted": f"https://127.0.0.1:{tls.port}",
            "elsewhere": "https://api.example.com",
            "private": "http://10.0.0.1",
        }
        tools = [
            tool(name, backend=PublishedBackend(url=f"{url}/secret/path?key=1")) for name, url in urls.items()
        ]
        with running_registry(tools, [binding("bot", ["open:use"])]) as r:
            before = r.http.get(r.url, headers=r.auth("team", "bot")).content
            found = outcomes(r)
            assert plain.ended.acquire(timeout=60)
            assert r.http.get(r.url, headers=r.auth("team", "bot")).content == before, "no list tells of it"
            told = r.admin("GET", ROUTE).json()
            metrics = r.metrics()

    assert {name: found[url] for name, url in urls.items()} == {
        "open": ProbeOutcome.CONNECTED,
        "closed": ProbeOutcome.REFUSED,
        "untrusted": ProbeOutcome.TLS_FAILED,
        "elsewhere": ProbeOutcome.EGRESS_REFUSED,
        "private": ProbeOutcome.EGRESS_REFUSED,
    }
    row = next(row for row in told["backends"] if row["backend"] == urls["open"])
    assert row["place"] == f"127.0.0.1:{plain.port}"
    assert row["probed_at"] > 0
    assert row["seconds"] >= 0
    assert tls.received == 0
    assert 'toolcrib_backends{outcome="egress_refused"} 2.0' in metrics
    assert 'toolcrib_backend_probe_duration_seconds_count{outcome="refused"} 1.0' in metrics


def test_over_tls_the_handshake_is_all_that_is_sent(
    certificate: Path, self_signed: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # what the machine trusts, as OpenSSL reads it
    touch._context.cache_clear()
    try:
        with listening(self_signed) as tls:
            url = f"https://127.0.0.1:{tls.port}"
            with running_registry([tool("fx", backend=PublishedBackend(url=url))]) as r:
                assert outcomes(r) == {url: ProbeOutcome.CONNECTED}
                assert tls.ended.acquire(timeout=60)
    finally:
        touch._context.cache_clear()

    assert (tls.connections, tls.received) == (1, 0)


def test_plain_tcp_carries_nothing_and_a_place_that_two_tools_share_is_dialled_once() -> None:
    with listening() as listener:
        tools = [tool(name, backend=backend(listener.port, f"/{name}")) for name in ("a", "b", "c")]
        with running_registry(tools) as r:
            (found,) = outcomes(r).values()
            assert listener.ended.acquire(timeout=60)

    assert (found, listener.connections, listener.received) == (ProbeOutcome.CONNECTED, 1, 0)


def test_a_server_that_comes_back_is_found() -> None:
    port = free_port()
    with running_registry([tool("fx", backend=backend(port))]) as r:
        assert outcomes(r) == {f"http://127.0.0.1:{port}": ProbeOutcome.REFUSED}
        with socket.create_server(("127.0.0.1", port)):
            wait_until(lambda: asked(r, every=1).backends[0].outcome is ProbeOutcome.CONNECTED)


def test_a_name_that_does_not_exist_is_told() -> None:
    egress = {"allow": ["*.invalid"]}
    with running_registry(
        [tool("fx", backend=PublishedBackend(url="http://fx.invalid/"))], egress=egress
    ) as r:
        assert outcomes(r) == {"http://fx.invalid": ProbeOutcome.NAME_NOT_FOUND}


def test_only_the_leader_has_it_probe_and_only_the_operator_is_told() -> None:
    with running_registry([tool("fx", backend=backend(free_port()))]) as r:
        assert asked(r, epoch=5).probing
        late = r.admin("POST", ROUTE, content=ProbeRequest(epoch=4).model_dump_json())
        assert (late.status_code, late.json()["code"]) == (409, "epoch_fenced")
        agent = r.http.get(r.admin_url + ROUTE, headers=r.auth("team", "bot"))
        assert agent.status_code in (401, 403)
        assert r.http.get(r.url + ROUTE, headers=r.auth("team", "bot")).status_code == 404
