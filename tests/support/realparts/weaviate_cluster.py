"""Three real Weaviate nodes that are one cluster, on loopback."""

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from realparts import processes
from realparts.weaviate import Weaviate

NODES = 3


@contextlib.contextmanager
def weaviate_cluster() -> Iterator[list[Weaviate]]:
    """The nodes, once all are ready; killed at the end. Raises as `Weaviate` does.

    Each has its own ports; a collection of replication factor 3 survives the loss of any one of them.
    """
    single, doubled = processes.free_ports(2 * NODES), _pairs(2 * NODES)
    # HTTP, gRPC, gossip and data, raft and raft-internal: nodes find one another's second port by adding one
    own = [[*single[2 * i : 2 * i + 2], *doubled[2 * i], *doubled[2 * i + 1]] for i in range(NODES)]
    joined = ",".join(f"weaviate-{i}:{raft}" for i, (_, _, _, _, raft, _) in enumerate(own))
    nodes = []
    with contextlib.ExitStack() as stack:
        for i, node_ports in enumerate(own):
            extra = {
                "CLUSTER_HOSTNAME": f"weaviate-{i}",
                "CLUSTER_IN_LOCALHOST": "true",
                "RAFT_BOOTSTRAP_EXPECT": str(NODES),
                "RAFT_JOIN": joined,
            }
            if i:
                extra["CLUSTER_JOIN"] = f"127.0.0.1:{own[0][2]}"
            node = Weaviate(extra=extra, ports=node_ports)
            stack.callback(node.close)
            nodes.append(node)
        # none is ready before a majority is there
        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(Weaviate.start, nodes))
        yield nodes


def _pairs(count: int) -> list[tuple[int, int]]:
    """Free ports p and p + 1."""
    found: dict[int, int] = {}
    while len(found) < count:
        port = processes.free_port()
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port + 1))
            if not {port - 1, port, port + 1} & {*found, *found.values()}:
                found[port] = port + 1
    return list(found.items())
