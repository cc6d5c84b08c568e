"""What /readyz says where no replica reports on servers: from when they are wanted, not from when nobody wanted any."""

import pytest

from operator_harness import MemoryReplica
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.imports import ServerWanted
from toolcrib_operator.adapters.memory import FixedReplicas
from toolcrib_operator.replicas import servers
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.replicas.servers import ServerReports

SERVER = "team/files"


def test_silence_is_counted_from_the_first_server_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(servers.time, "time", lambda: now[0])
    replica = MemoryReplica()
    reports = ServerReports(Publisher(1, FixedReplicas(replica)), lambda name: replica)
    wanted = ServerWanted(server=SERVER, backend=PublishedBackend(url="http://127.0.0.1:9/mcp"))

    now[0] += 3_600
    reports.want(SERVER, wanted)
    assert reports.problem is None, "an hour in which nothing was wanted is no silence"
    now[0] += 3_600
    assert "for 3600 s" in str(reports.problem)
    reports.want(SERVER, None)
    assert reports.problem is None
