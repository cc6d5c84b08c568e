"""What a single-node Kubernetes consists of: addresses, certificates, configuration files, programs in order."""

import contextlib
import json
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realparts import lookup, pki

API_PORT = 6443
NODE_NAME = "crib"
STORAGE_CLASS = "local"
VOLUMES = 16  # made beforehand: there is no provisioner
PAUSE_IMAGE = "local/pause:1"

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "containerd", "coredns", "kubelet", "kube-proxy")  # fmt: skip
PARTS = ("kube-apiserver", "kubectl", "etcd", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns")  # fmt: skip


@dataclass(frozen=True)
class Addresses:
    """The private ranges of the node of this number (0 to 31), all reachable from the host."""

    number: int

    @property
    def host(self) -> str:
        return f"10.213.{self.number}.1"

    @property
    def node(self) -> str:
        return f"10.213.{self.number}.2"

    @property
    def pods(self) -> str:
        return f"10.214.{self.number}.0/24"

    @property
    def services(self) -> str:
        return f"10.215.{self.number}.0/24"

    @property
    def first_service(self) -> str:
        return f"10.215.{self.number}.1"


def link(number: int) -> str:
    """The name of the host's end of a node's link."""
    return f"tcrib{number}"


def cgroup(number: int) -> str:
    """The name of a node's root in each cgroup hierarchy."""
    return f"toolcrib-node-{number}"


def write(folder: Path, at: Addresses, *, detached: bool, temporary: bool) -> dict[str, Any]:
    """Write everything a node of that number needs below `folder` and return the plan for `nodejail`.

    Certificates and tokens that are there already stay, so a node that was down comes back as itself.
    """
    for name in ("pki", "log", "cni", "hold", "volumes"):
        (folder / name).mkdir(exist_ok=True)
    for number in range(VOLUMES):
        (folder / "volumes" / f"v{number}").mkdir(exist_ok=True)
    if not (folder / "pki" / "ca.crt").exists():
        _certificates(folder / "pki", at)
    for name in ("admin", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"):
        _kubeconfig(folder, name, f"https://{at.node}:{API_PORT}")
    _containerd(folder)
    _network(folder, at)
    _kubelet(folder, at)
    _write_json(folder / "kube-proxy.json", _kube_proxy(folder, at))
    (folder / "Corefile").write_text(
        f".:53 {{\n  bind {at.node}\n  kubernetes cluster.local in-addr.arpa {{\n"
        f"    kubeconfig {folder}/admin.kubeconfig c\n  }}\n  cache 5\n}}\n"
    )
    plan = {
        "folder": str(folder),
        "number": at.number,
        "link": link(at.number),
        "cgroup": cgroup(at.number),
        "host_address": at.host,
        "address": at.node,
        "routes": [at.pods, at.services],
        "detached": detached,
        "temporary": temporary,
        "programs": _programs(folder, at),
    }
    _write_json(folder / "plan.json", plan)
    return plan


def _certificates(folder: Path, at: Addresses) -> None:
    authority = pki.Authority("toolcrib-test-ca", folder)
    hosts = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", at.first_service, at.node)  # fmt: skip
    authority.issue("apiserver", "kube-apiserver", hosts=hosts)
    authority.issue("admin", "admin", organization="system:masters")
    for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        authority.issue(name, f"system:{name}")
    authority.issue(
        "kubelet", f"system:node:{NODE_NAME}", organization="system:nodes", hosts=(NODE_NAME, at.node)
    )
    pki.write_rsa_key(folder / "sa.key")


def _kubeconfig(folder: Path, name: str, server: str) -> None:
    files = {kind: str(folder / "pki" / f"{name}.{end}") for kind, end in (("crt", "crt"), ("key", "key"))}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": server, "certificate-authority": str(folder / "pki" / "ca.crt")},
            }
        ],
        "users": [{"name": "u", "user": {"client-certificate": files["crt"], "client-key": files["key"]}}],
    }
    _write_json(folder / f"{name}.kubeconfig", config)


def _containerd(folder: Path) -> None:
    # restrict_oom_score_adj: root in a container or sandbox often lacks CAP_SYS_RESOURCE, and runc then fails
    # with "can't get final child's PID". The opt plugin would make /opt/containerd on the host.
    (folder / "containerd.toml").write_text(
        f"""version = 2
root = "{folder}/containerd"
state = "/run/containerd-state"
disabled_plugins = ["io.containerd.internal.v1.restart"]
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""
    )


def _network(folder: Path, at: Addresses) -> None:
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": at.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni-addresses",
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True, "ipam": ipam}  # fmt: skip
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    network = {"cniVersion": "0.4.0", "name": "crib", "plugins": [bridge, portmap]}
    _write_json(folder / "cni" / "10-crib.conflist", network)


def _kubelet(folder: Path, at: Addresses) -> None:
    # Nothing outside is asked for names: a pull of an image that is not here fails at once.
    (folder / "resolv.conf").write_text(f"nameserver {at.node}\n")
    certificates = folder / "pki"
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup(at.number)}",
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "podCIDR": at.pods,
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "authentication": {
            "x509": {"clientCAFile": str(certificates / "ca.crt")},
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(certificates / "kubelet.crt"),
        "tlsPrivateKeyFile": str(certificates / "kubelet.key"),
        # A developer's nearly full disk is no reason to evict here.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "clusterDNS": [at.node],
        "clusterDomain": "cluster.local",
        "resolvConf": str(folder / "resolv.conf"),
        "healthzPort": 0,
    }
    _write_json(folder / "kubelet.json", config)


def _kube_proxy(folder: Path, at: Addresses) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(folder / "kube-proxy.kubeconfig")},
        "mode": "iptables",
        "clusterCIDR": at.pods,
        "hostnameOverride": NODE_NAME,
        # Sizes of the connection table belong to the host, not to a namespace.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "oomScoreAdj": 0,
    }


def _programs(folder: Path, at: Addresses) -> list[dict[str, Any]]:
    """Each program with what must listen before it starts."""
    certificates = folder / "pki"
    api, etcd = f"{at.node}:{API_PORT}", "127.0.0.1:2379"
    lines: list[tuple[str, str, list[str]]] = [
        ("etcd", "", [
            f"--data-dir={folder}/etcd", "--unsafe-no-fsync", f"--listen-client-urls=http://{etcd}",
            f"--advertise-client-urls=http://{etcd}", "--listen-peer-urls=http://127.0.0.1:2380",
        ]),
        ("kube-apiserver", etcd, [
            f"--etcd-servers=http://{etcd}", "--bind-address=0.0.0.0", f"--advertise-address={at.node}",
            f"--secure-port={API_PORT}", f"--client-ca-file={certificates}/ca.crt",
            f"--tls-cert-file={certificates}/apiserver.crt", f"--tls-private-key-file={certificates}/apiserver.key",
            "--authorization-mode=Node,RBAC", "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={certificates}/sa.key",
            f"--service-account-signing-key-file={certificates}/sa.key", f"--service-cluster-ip-range={at.services}",
            f"--kubelet-client-certificate={certificates}/admin.crt", f"--kubelet-client-key={certificates}/admin.key",
            f"--kubelet-certificate-authority={certificates}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
        ]),
        ("kube-controller-manager", api, [
            f"--kubeconfig={folder}/kube-controller-manager.kubeconfig",
            f"--service-account-private-key-file={certificates}/sa.key", f"--root-ca-file={certificates}/ca.crt",
            f"--cluster-signing-cert-file={certificates}/ca.crt", f"--cluster-signing-key-file={certificates}/ca.key",
            "--use-service-account-credentials", "--leader-elect=false", f"--cluster-cidr={at.pods}",
            "--node-cidr-mask-size=24", "--allocate-node-cidrs=true", "--bind-address=127.0.0.1",
        ]),
        ("kube-scheduler", api, [
            f"--kubeconfig={folder}/kube-scheduler.kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1",
        ]),
        ("containerd", "", ["-c", f"{folder}/containerd.toml"]),
        ("coredns", api, ["-conf", f"{folder}/Corefile"]),
        ("kubelet", f"{folder}/containerd.sock", [
            f"--config={folder}/kubelet.json", f"--kubeconfig={folder}/kubelet.kubeconfig",
            f"--hostname-override={NODE_NAME}", f"--node-ip={at.node}", f"--root-dir={folder}/kubelet",
        ]),
        ("kube-proxy", api, [f"--config={folder}/kube-proxy.json"]),
    ]  # fmt: skip
    return [
        {"name": name, "after": after, "argv": [_path(name), *arguments]} for name, after, arguments in lines
    ]


def _path(name: str) -> str:
    return str(shutil.which("containerd") or name) if name == "containerd" else str(lookup.path_of(name))


def _write_json(path: Path, content: Any) -> None:
    # kubelet and kube-proxy read a configuration that begins with { as JSON
    path.write_text(json.dumps(content, indent=1))


def free_number(folder: Path) -> tuple[socket.socket, int]:
    """A number that no running node has, held by a name in the kernel that goes away with its holders."""
    wanted = range(32)
    with contextlib.suppress(OSError, ValueError, KeyError):
        # A node that comes back keeps its addresses: they are in its certificates.
        wanted = range((kept := json.loads((folder / "plan.json").read_text())["number"]), kept + 1)
    for number in wanted:
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            lock.bind(f"\0toolcrib-node-{number}")
        except OSError:
            lock.close()
            continue
        return lock, number
    raise RuntimeError("this node runs already" if len(wanted) == 1 else "32 nodes run here already")
