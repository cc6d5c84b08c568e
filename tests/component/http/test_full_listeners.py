"""However many connections anybody opens to the listeners of operators, probes and scrapers, those find a place."""

import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from published import tool
from registry_harness import OPERATOR, mint
from registry_process import RegistryProcess, configuration, process
from secret_volume import SecretVolume
from slow_clients import connected
from toolcrib_registry.http.connection_limits import OTHERS, ConnectionGate, ConnectionLimits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
OWN, ANOTHER = "127.0.0.1", "127.0.0.2"
MANY = [f"127.0.1.{number}" for number in range(1, 65)]
NO_DEADLINE = {"header_seconds": 600.0}
SENT = [b"", b"GET /healthz HTTP/1.1\r\n"]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    with process(configuration(tmp_path_factory.mktemp("r"), limits=NO_DEADLINE)) as running:
        running.publish(tool("team/calculator"))
        yield running


@contextmanager
def flood(port: int, sources: Sequence[str], sent: bytes = b"") -> Iterator[None]:
    """More connections than there are places, from these addresses in turn; each sends this and waits."""
    with ExitStack() as stack:
        for number in range(OTHERS + 44):
            source = sources[number % len(sources)]
            connection = stack.enter_context(connected(port, source=source))
            with suppress(ConnectionError):
                connection.sendall(sent)
        yield


def admin_headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {mint(OPERATOR, audience='toolcrib-admin')}"}


@pytest.mark.parametrize("sent", SENT, ids=["nothing sent", "half a request"])
@pytest.mark.parametrize(
    "sources", [[ANOTHER], [OWN], MANY], ids=["another peer", "the same peer", "64 peers"]
)
def test_probes_and_publishes_are_answered_whoever_fills_the_admin_listener(
    registry: RegistryProcess, sources: Sequence[str], sent: bytes
) -> None:
    with flood(registry.admin, sources, sent):
        for path in ("/healthz", "/readyz"):
            assert httpx.get(registry.admin_url + path, timeout=60).status_code == 200
        registry.publish(tool("team/calculator"))


@pytest.mark.parametrize(
    "sources", [[ANOTHER], [OWN], MANY], ids=["another peer", "the same peer", "64 peers"]
)
def test_metrics_are_read_whoever_fills_their_listener(
    registry: RegistryProcess, sources: Sequence[str]
) -> None:
    with flood(registry.metrics, sources):
        answer = httpx.get(f"{registry.metrics_url}/metrics", timeout=60)
        assert answer.status_code == 200
        refused = 'toolcrib_connections_closed_total{listener="metrics",reason="connections_per_peer"}'
        assert f"{refused} 0.0" not in answer.text


def test_a_verified_operators_connection_is_kept_while_its_own_address_fills_the_listener(
    registry: RegistryProcess,
) -> None:
    def port_of(answer: httpx.Response) -> int:
        assert answer.status_code == 200
        port: int = answer.extensions["network_stream"].get_extra_info("client_addr")[1]
        return port

    url = f"{registry.admin_url}/v1/admin/state"
    with httpx.Client(headers=admin_headers(), timeout=60) as operator:
        first = port_of(operator.get(url))
        with flood(registry.admin, [OWN]):
            assert port_of(operator.get(url)) == first


def test_half_tls_handshakes_keep_no_probe_out(tmp_path: Path) -> None:
    volume = SecretVolume(tmp_path / "tls", "127.0.0.1")
    config = configuration(tmp_path / "r", limits=NO_DEADLINE, admin_tls=volume.files)
    with process(config, scheme="https") as running, flood(running.admin, [OWN], b"\x16\x03\x01\x02\x00"):
        context = ssl.create_default_context(cafile=str(volume.ca))
        answer = httpx.get(f"{running.admin_url}/healthz", verify=context, timeout=60)
        assert answer.status_code == 200


def test_one_peer_has_half_of_a_small_listener_and_the_next_one_finds_a_place() -> None:
    reasons: list[str] = []
    gate = ConnectionGate("agents", ConnectionLimits(connections=8, per_peer=512), reasons.append)
    assert [bool(gate.enter("10.0.0.1", 0.0)) for _ in range(5)] == [True] * 4 + [False]
    assert [bool(gate.enter("10.0.0.2", 0.0)) for _ in range(3)] == [True] * 2 + [False]
    assert gate.enter("10.0.0.3", 0.0)
    assert reasons == ["connections_per_peer"] * 2


def test_where_all_places_are_taken_whoever_has_most_loses_the_oldest_idle_one() -> None:
    gate = ConnectionGate("admin", ConnectionLimits(connections=4, per_peer=2, replaces=True))
    busy, first, second, other = (
        gate.enter(f"10.0.0.{peer}", float(when)) for when, peer in enumerate((1, 1, 2, 3))
    )
    assert busy
    assert first
    assert gate.open == 4
    busy.busy = True
    # nobody has more idle ones than the newcomer's peer has: its own oldest goes
    assert gate.enter("10.0.0.2", 5.0)
    assert gate.slots >= {busy, first, other}
    assert second not in gate.slots
    assert gate.enter("10.0.0.4", 6.0)
    assert first not in gate.slots
    assert gate.open == 4
    for slot in gate.slots:
        slot.busy = True
    assert gate.enter("10.0.0.5", 7.0) is None
