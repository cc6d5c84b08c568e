"""A registry replica in a network namespace of its own, so that a test can cut it off by dropping packets.

    host (operator, agents, API server, Weaviate, tools) ── veth, a /30 ── namespace (the replica)

The namespace belongs to a process that does nothing and ends with the test, and the link goes with the namespace:
nothing is left behind, however a test ends. A restarted replica is at the same place; while it is away connections are
refused. What it asks for on the host it finds at the host's end of the link, where relays pass it on to loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from cluster import Cluster, Replica
from realparts.processes import Child, clean_environment, free_ports, wait_until
from realparts.required import require

_PROBE = "ip link add name one type veth peer name two && iptables -A INPUT -p tcp --dport 9 -j DROP"


def isolation_lacks() -> str:
    """Why no replica can be cut off here; empty where one can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "cutting a replica off takes Linux and root"
    if lacking := [each for each in ("unshare", "nsenter", "ip", "iptables") if shutil.which(each) is None]:
        return f"cutting a replica off takes {', '.join(lacking)} (Debian: util-linux, iproute2, iptables)"
    if (made := subprocess.run(["unshare", "--net", "sh", "-c", _PROBE], capture_output=True)).returncode:
        return f"root may not make network namespaces with a firewall here: {made.stderr.decode()[:200]}"
    return ""


def require_isolation() -> None:
    """Skip the test (fail, where real parts are required) unless a replica can be cut off."""
    why = isolation_lacks()
    require(not why, why or "root and network namespaces")


class IsolatedReplica(Replica):
    """The same as other replicas, behind a link.

    Args:
        settings: of this replica alone.
    """

    def __init__(self, cluster: Cluster, name: str, **settings: Any) -> None:
        self.name = name
        self._link = f"tcr{os.getpid()}"
        number = os.getpid() % 16384  # a /30 of 198.18.0.0/16: meant for tests (RFC 2544), and not routed
        here, there = (f"198.18.{number >> 6}.{(number & 63) * 4 + end}" for end in (1, 2))
        self._here, self._there = here, there
        ports = free_ports(3)
        self.url, self.admin_url, self.metrics_url = (f"http://{there}:{port}" for port in ports)
        self.admin_port = ports[1]
        config = cluster.registry_config(name, *ports)
        keys = cluster.folder / "jwks.json"
        keys.write_text(cluster.api.client.get("/openid/v1/jwks").text)
        issuer = {
            k: v for k, v in config["issuers"][0].items() if k in ("issuer", "audience", "scopes", "cluster")
        }
        config |= {
            "host": there,
            "admin_host": there,
            "metrics": {**config["metrics"], "host": there},
            "public_host": there,
            "issuers": [{**issuer, "jwks_file": str(keys)}],
            "backends": {k: v.replace("127.0.0.1", here) for k, v in config["backends"].items()},
            **settings,
        }
        if "host" in config["store"]:
            config["store"] |= {"host": here}
        weaviate = cluster.weaviate
        self._ports = [int(place.rsplit(":", 1)[1]) for place in config["backends"].values()]
        # Weaviate's gRPC listens on every address, the link's too
        self._ports += [weaviate.http_port] if weaviate else []
        file = cluster.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        self._keeper = Child(
            "namespace",
            ["unshare", "--net", "--", "sleep", "infinity"],
            log=cluster.folder / f"{name}-net.log",
        )
        self._stack = contextlib.ExitStack()
        argv = [sys.executable, "-m", "toolcrib_registry.main", "--config", str(file)]
        self._argv = argv
        self.child = Child(name, argv, log=cluster.folder / f"{name}.log", env=clean_environment({}))

    def start(self) -> None:
        """Make the namespace and the link, and start the replica there."""
        self._stack.callback(self._keeper.kill)
        self._keeper.start()
        own = os.readlink("/proc/self/ns/net")
        pid = self._keeper.pid
        wait_until(lambda: os.readlink(f"/proc/{pid}/ns/net") != own, 60, 0.005)
        inside = ["nsenter", "--target", str(pid), "--net"]
        for argv in (
            ["ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", str(pid)],
            ["ip", "addr", "add", f"{self._here}/30", "dev", self._link],
            ["ip", "link", "set", self._link, "up"],
            [*inside, "ip", "link", "set", "lo", "up"],
            [*inside, "ip", "addr", "add", f"{self._there}/30", "dev", "eth0"],
            [*inside, "ip", "link", "set", "eth0", "up"],
        ):
            subprocess.run(argv, check=True)
        self._stack.enter_context(_relaying(self._here, sorted(set(self._ports))))
        self.child.argv = [*inside, "--", *self._argv]
        super().start()

    def close(self) -> None:
        """Stop the replica and the relays, and end the namespace and with it the link."""
        self.child.stop()
        self._stack.close()

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Drop every packet between the operator and this replica; agents still reach it."""
        self._firewall("-A")
        try:
            yield
        finally:
            self._firewall("-D")

    def _firewall(self, action: str) -> None:
        port = str(self.admin_port)
        for chain, side, device in (("INPUT", "--dport", "-i"), ("OUTPUT", "--sport", "-o")):
            self.inside(
                "iptables", "-w", action, chain, device, "eth0", "-p", "tcp", side, port, "-j", "DROP"
            )

    def metrics(self) -> str:
        """Read within the namespace: no firewall is between."""
        code = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=60).read().decode())"
        return self.inside(sys.executable, "-I", "-c", code, f"{self.metrics_url}/metrics")

    def inside(self, *argv: str) -> str:
        """What a command in the namespace prints."""
        words = ["nsenter", "--target", str(self._keeper.pid), "--net", *argv]
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=clean_environment({}))
        return done.stdout


@contextlib.contextmanager
def _relaying(host: str, ports: Sequence[int]) -> Iterator[None]:
    """What comes to `host` on `ports` goes to the same ports of loopback."""
    loop, stop, started = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    failed: list[OSError] = []

    async def relay(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(pipe(reader, back), pipe(there, writer))

    async def run() -> None:
        servers = []
        try:
            for port in ports:
                servers.append(await asyncio.start_server(functools.partial(relay, port), host, port))
        except OSError as error:
            failed.append(error)
        started.set()
        await stop.wait()
        for server in servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), name="relays", daemon=True)
    thread.start()
    try:
        assert started.wait(60)
        if failed:
            raise failed[0]
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand on what is read until one side is done."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        with contextlib.suppress(OSError):
            writer.close()
