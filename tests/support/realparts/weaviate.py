"""A real Weaviate server, for tests, demo and benchmarks."""

import shutil
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import httpx

from realparts import lookup, processes


class Weaviate(processes.Server):
    """One Weaviate node on loopback, with data in a temporary folder, on ports of its own; a context manager.

    No vectorizer module: callers bring their vectors. With `api_key` (several: by comma) that key is needed for
    everything but the health routes; else anybody may do anything. `tls` is a CA, a certificate and a key (PEM): HTTP
    and gRPC are served over TLS then. `extra` are more settings (environment), `ports` the six ports to use.
    `directory` (which must exist) is used and kept instead of a temporary one. Raises lookup.MissingPartError if the
    program is not here, processes.NotReadyError.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        tls: tuple[Path, Path, Path] | None = None,
        directory: Path | None = None,
        extra: Mapping[str, str] | None = None,
        ports: Sequence[int] = (),
    ) -> None:
        program = lookup.path_of("weaviate")
        self.api_key = api_key
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="toolcrib-weaviate-"))
        self.host = "127.0.0.1"
        ports = list(ports) or processes.free_ports(6)
        self.http_port, self.grpc_port = ports[:2]
        self.tls = tls
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://{self.host}:{self.http_port}"
        where = ["--host", self.host, "--port", str(self.http_port), "--scheme", "http"]
        environment = _settings(self.directory / "data", ports[1:], api_key)
        if tls:
            _, certificate, key = map(str, tls)
            where = ["--tls-host", self.host, "--tls-port", str(self.http_port), "--scheme", "https"]
            where += ["--tls-certificate", certificate, "--tls-key", key]
            environment |= {"GRPC_CERT_FILE": certificate, "GRPC_KEY_FILE": key}
        self.process = processes.Child(
            "weaviate",
            [program, *where],
            log=self.directory / "weaviate.log",
            env=processes.clean_environment(environment | dict(extra or {})),
            cwd=self.directory,
        )
        self.log = self.process.log

    def start(self) -> Self:
        """Start the server on its data and ports and wait until HTTP and gRPC are served."""
        self.process.start()
        self.process.wait_ready(self.ready, timeout=120, interval=0.1)
        return self

    def close(self) -> None:
        """End the server at once and remove the temporary folder."""
        if "client" in self.__dict__:
            self.client.close()
        self.process.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def ready(self) -> bool:
        """Whether HTTP and gRPC are served."""
        try:
            answer = self.client.get("/v1/.well-known/ready", timeout=10)
        except httpx.TransportError:
            return False
        return answer.is_success and processes.listening(self.grpc_port)

    def wipe(self) -> None:
        """Delete all collections, as if the server were new. Raises httpx.HTTPStatusError."""
        schema = self.client.get("/v1/schema")
        schema.raise_for_status()
        for collection in schema.json()["classes"]:
            self.client.delete(f"/v1/schema/{collection['class']}").raise_for_status()

    @cached_property
    def client(self) -> httpx.Client:
        """An HTTP client for the REST API that sends the key, closed with the server."""
        key = (self.api_key or "").partition(",")[0]
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        verify = ssl.create_default_context(cafile=str(self.tls[0])) if self.tls else True
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=30, verify=verify)


def _settings(data: Path, ports: list[int], api_key: str | None) -> dict[str, str]:
    grpc, gossip, cluster_data, raft, raft_internal = map(str, ports)
    settings = {
        "PERSISTENCE_DATA_PATH": str(data),
        "DEFAULT_VECTORIZER_MODULE": "none",
        "ENABLE_API_BASED_MODULES": "false",
        "CLUSTER_HOSTNAME": "weaviate-0",
        "CLUSTER_ADVERTISE_ADDR": "127.0.0.1",
        "CLUSTER_BIND_ADDR": "127.0.0.1",
        # Every port is given, so several servers run side by side.
        "GRPC_PORT": grpc,
        "CLUSTER_GOSSIP_BIND_PORT": gossip,
        "CLUSTER_DATA_BIND_PORT": cluster_data,
        "RAFT_PORT": raft,
        "RAFT_INTERNAL_RPC_PORT": raft_internal,
        "RAFT_BOOTSTRAP_EXPECT": "1",
        # One node elects itself: the default of 5 only makes every start some seconds longer.
        "RAFT_TIMEOUTS_MULTIPLIER": "1",
        # A nearly full disk of a developer's machine is no reason to refuse writes here.
        "DISK_USE_READONLY_PERCENTAGE": "0",
        "GO_PROFILING_DISABLE": "true",
        "DISABLE_TELEMETRY": "true",
        "LOG_LEVEL": "warning",
        "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "false" if api_key else "true",
    }
    if api_key:
        settings |= {
            "AUTHENTICATION_APIKEY_ENABLED": "true",
            "AUTHENTICATION_APIKEY_ALLOWED_KEYS": api_key,
            "AUTHENTICATION_APIKEY_USERS": ",".join(
                f"toolcrib-{i}" for i, _ in enumerate(api_key.split(","))
            ),
        }
    return settings
