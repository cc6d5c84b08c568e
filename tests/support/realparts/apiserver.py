"""A real Kubernetes API server with its etcd, for tests, demo and benchmarks."""

import json
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import httpx

from realparts import lookup, pki, processes

ISSUER = "https://kubernetes.default.svc"
ADMIN_TOKEN = "toolcrib-test-admin"  # of a throwaway server on loopback

_HOSTS = ("localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")

TOOLCRIB_KINDS = (
    "tools",
    "toolservers",
    "agentscopebindings",
    "clusteragentscopebindings",
    "agents",
    "accessrequests",
    "toolcanaries",
)
_GROUPS = {
    **dict.fromkeys(TOOLCRIB_KINDS, "/apis/toolcrib.dev/v1alpha1"),
    "leases": "/apis/coordination.k8s.io/v1",
}
"""Where kinds are that are not of the core group."""


class ApiServer(processes.Server):
    """kube-apiserver and etcd on loopback, in a temporary folder, on ports of their own; a context manager.

    RBAC is on, schemas, CEL rules and admission policies are in force (a new ValidatingAdmissionPolicy after
    about 4 s), service-account tokens are real. **There is no controller manager**: nothing collects garbage
    (owner references delete nothing), a deleted namespace stays Terminating (`delete_namespace` finishes it),
    no namespace has a `default` service account until somebody makes one, and aggregated cluster roles (view,
    edit, admin) are empty.

    `users` maps a name to its static token and groups. `public_jwks` lets anybody read the signing keys;
    else a caller authenticates to read them. `directory` (which must exist) is used and kept instead of a
    temporary one. Raises lookup.MissingPartError if a program is not here, processes.NotReadyError.
    """

    def __init__(
        self,
        *,
        users: Mapping[str, tuple[str, Sequence[str]]] | None = None,
        issuer: str = ISSUER,
        public_jwks: bool = False,
        directory: Path | None = None,
        extra_args: Sequence[str] = (),
    ) -> None:
        self.issuer = issuer
        self._public_jwks = public_jwks
        self._programs = {name: lookup.path_of(name) for name in ("kube-apiserver", "etcd", "kubectl")}
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="toolcrib-apiserver-"))
        self.port, etcd_client, etcd_peer = processes.free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.jwks_url = f"{self.url}/openid/v1/jwks"
        self.ca_file = self.directory / "ca.crt"
        self._kubeconfigs: dict[str, Path] = {}

        pki.write_server_certificate(self.directory, _HOSTS)
        pki.write_rsa_key(self.directory / "sa.key")
        self._write_tokens({"admin": (ADMIN_TOKEN, ["system:masters"]), **(users or {})})
        self.admin_kubeconfig = self.kubeconfig_for(ADMIN_TOKEN)
        self.etcd = self._child("etcd", _etcd_arguments(self.directory / "etcd", etcd_client, etcd_peer))
        arguments = [*_apiserver_arguments(self.directory, self.port, etcd_client, issuer), *extra_args]
        self.process = self._child("kube-apiserver", arguments)
        self.log = self.process.log

    def start(self) -> Self:
        """Start what is not running; wait until requests are served and roles and namespaces are there."""
        for child in (self.etcd, self.process):
            if not child.running:
                child.start()
        self.process.wait_ready(self.ready, timeout=120)
        if self._public_jwks:
            self._publish_jwks()
        return self

    def close(self) -> None:
        """End both servers at once and remove the temporary folder."""
        if "client" in self.__dict__:
            self.client.close()
        # No grace: an API server drains open watches for a minute, and nothing here is to be kept.
        self.process.kill()
        self.etcd.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def restart(self, grace: float = 5.0) -> None:
        """Stop the API server, at latest after `grace` seconds, and start it with the same data and port."""
        self.process.stop(grace)
        self.start()

    def ready(self) -> bool:
        """Whether the API server serves requests, with its roles and the namespace `default` in place."""
        try:
            paths = ("/readyz", "/api/v1/namespaces/default")
            return all(self.client.get(path, timeout=10).is_success for path in paths)
        except httpx.TransportError:
            return False

    @cached_property
    def ssl_context(self) -> ssl.SSLContext:
        """Trusts this server's CA and nothing else."""
        return ssl.create_default_context(cafile=str(self.ca_file))

    @cached_property
    def client(self) -> httpx.Client:
        """An HTTP client with the admin's rights, closed with the server."""
        return self.client_for(ADMIN_TOKEN)

    def client_for(self, token: str | None) -> httpx.Client:
        """An HTTP client for one bearer token, None for anonymous; the caller closes it."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(
            base_url=self.url, headers=headers, verify=self.ssl_context, trust_env=False, timeout=60
        )

    def read(self, kind: str, name: str = "", namespace: str = "") -> dict[str, Any]:
        """An object of a kind (`tools`, `configmaps`), or without a name the list; {} where it is not there.

        What waits for a state asks by this: each kubectl takes 0.12 s of processor time, of which a state that is
        waited for then has less.
        """
        within = f"/namespaces/{namespace}" if namespace else ""
        return self._answer(f"{_GROUPS.get(kind, '/api/v1')}{within}/{kind}{name and '/' + name}")

    def kubeconfig_for(self, token: str, namespace: str = "default") -> Path:
        """The path of a kubeconfig (readable by us alone) that authenticates with this token."""
        key = f"{namespace}/{token}"
        if key not in self._kubeconfigs:
            path = self.directory / f"kubeconfig-{len(self._kubeconfigs)}"
            path.touch(mode=0o600)
            cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
            context = {"cluster": "test", "user": "test", "namespace": namespace}
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "test", "user": {"token": token}}],
                "contexts": [{"name": "test", "context": context}],
                "current-context": "test",
            }
            path.write_text(json.dumps(config))  # JSON is YAML
            self._kubeconfigs[key] = path
        return self._kubeconfigs[key]

    def kubectl(
        self, *args: str, input: str | None = None, token: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the admin, or with a token; text in, text out.

        Settings go by the environment, so plugins on PATH work too. The caller checks `returncode`.
        """
        settings = {
            "KUBECONFIG": str(self.kubeconfig_for(token) if token else self.admin_kubeconfig),
            # Its own: the user's cache would mix the discovery of servers that come and go.
            "KUBECACHEDIR": str(self.directory / "kubectl-cache"),
            "HOME": str(self.directory),
            "KUBERC": "off",
            **processes.GO_COMMANDS,
        }
        return subprocess.run(
            [self._programs["kubectl"], *args],
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=processes.clean_environment(settings),
        )

    def token_request(
        self,
        namespace: str,
        serviceaccount: str,
        audiences: Sequence[str] | None = None,
        seconds: int = 3600,
    ) -> str:
        """A token of an existing service account by TokenRequest; no audiences: the API server's own.

        `seconds` is at least 600, says the API. Raises httpx.HTTPStatusError.
        """
        response = self.client.post(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{serviceaccount}/token",
            json={"spec": {"audiences": list(audiences or ()), "expirationSeconds": seconds}},
        )
        response.raise_for_status()
        token: str = response.json()["status"]["token"]
        return token

    def create_namespace(self, name: str) -> str:
        """Create a namespace and return its name. Raises httpx.HTTPStatusError."""
        self.client.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
        return name

    def delete_namespace(self, name: str) -> None:
        """Remove a namespace and the Toolcrib objects in it for good, finalizers or not; the rest stays."""
        self.purge(name)
        body = self.client.delete(f"/api/v1/namespaces/{name}").json()
        # What the namespace controller would do when all is gone.
        if body.get("kind") == "Namespace":
            body["spec"]["finalizers"] = []
            self.client.put(f"/api/v1/namespaces/{name}/finalize", json=body).raise_for_status()

    def purge(self, namespace: str | None = None, group: str = "toolcrib.dev") -> None:
        """Delete all objects of an API group, finalizers or not: in one namespace, or everywhere."""
        groups = self.client.get(f"/apis/{group}")
        if groups.status_code == httpx.codes.NOT_FOUND:
            return
        base = f"/apis/{groups.json()['preferredVersion']['groupVersion']}"
        for resource in self.client.get(base).json()["resources"]:
            if "/" in resource["name"] or (namespace and not resource["namespaced"]):
                continue
            within = f"/namespaces/{namespace}" if namespace else ""
            for item in self._answer(f"{base}{within}/{resource['name']}")["items"]:
                metadata: dict[str, Any] = item["metadata"]
                place = f"/namespaces/{metadata['namespace']}" if resource["namespaced"] else ""
                path = f"{base}{place}/{resource['name']}/{metadata['name']}"
                self.client.delete(path)
                self.client.patch(
                    path,
                    json={"metadata": {"finalizers": None}},
                    headers={"Content-Type": "application/merge-patch+json"},
                )

    def _answer(self, path: str) -> dict[str, Any]:
        """What is there, else {}. While the cache of a new resource fills, the API server answers 429: asked again, as clients do."""
        answers: list[httpx.Response] = []

        def answered() -> bool:
            answers.append(self.client.get(path))
            return answers[-1].status_code != httpx.codes.TOO_MANY_REQUESTS

        processes.wait_until(answered)
        if answers[-1].status_code == httpx.codes.NOT_FOUND:
            return {}
        found: dict[str, Any] = answers[-1].raise_for_status().json()
        return found

    def _publish_jwks(self) -> None:
        name = "toolcrib-test-public-jwks"
        role = "system:service-account-issuer-discovery"
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:unauthenticated"}],
        }
        response = self.client.post(f"/apis/{group}/v1/clusterrolebindings", json=binding)
        if response.status_code != httpx.codes.CONFLICT:
            response.raise_for_status()

    def _write_tokens(self, users: Mapping[str, tuple[str, Sequence[str]]]) -> None:
        path = self.directory / "tokens.csv"
        path.touch(mode=0o600)
        lines = [f'{token},{name},{name},"{",".join(groups)}"\n' for name, (token, groups) in users.items()]
        path.write_text("".join(lines))

    def _child(self, name: str, arguments: Sequence[str]) -> processes.Child:
        return processes.Child(
            name,
            [self._programs[name], *arguments],
            log=self.directory / f"{name}.log",
            env=processes.clean_environment(),
            cwd=self.directory,
        )


def _etcd_arguments(data: Path, client: int, peer: int) -> list[str]:
    client_url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        f"--data-dir={data}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        # Survives a crash of etcd, not of the machine: enough here, and much faster.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver_arguments(folder: Path, port: int, etcd: int, issuer: str) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--service-account-issuer={issuer}",
        f"--api-audiences={issuer}",
        f"--service-account-key-file={folder / 'sa.key'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}",
        "--authorization-mode=RBAC",
        # as on nodes: else it refuses such pods before a policy does
        "--allow-privileged=true",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--service-cluster-ip-range=10.0.0.0/24",
        # Pods are not run here, and nobody makes the service accounts that this plugin wants.
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
    ]
