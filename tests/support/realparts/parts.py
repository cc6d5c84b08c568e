"""The real servers that tests, demo and benchmarks run: which version, and what builds it.

Kept apart from finding and building, so that a new version is one line here and one in the part's go.mod
(a unit test compares the two). Standard library only: this runs before any environment exists.
"""

from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
GO_MINIMUM = (1, 26)

_KUBERNETES = "1.37.0"
_STAMP = "-X k8s.io/component-base/version."
# Without the stamp clients read v0.0.0 and refuse or warn about the version skew.
_KUBERNETES_LDFLAGS = (
    f"-s -w {_STAMP}gitVersion=v{_KUBERNETES} {_STAMP}gitMajor=1 {_STAMP}gitMinor={_KUBERNETES.split('.')[1]}"
)
# Dex's tags (v2.…) are no module versions, since its module has no /v2: a commit it is.
_DEX = "0.0.0-20260806151424-ab64ed778070"


@dataclass(frozen=True)
class Part:
    """One server or client program.

    `minimum` is the oldest (major, minor) that is taken from outside; `version` is what we build.
    `module` is the folder under `tools/` whose go.mod pins it, `requires` the module in that go.mod.
    `version_args` makes the program print its version; empty: it has no such option, the version is read
    from the build information inside the file. `seconds`: how long resolving and building took on two cores.
    """

    name: str
    version: str
    minimum: tuple[int, int]
    module: str
    requires: str
    package: str
    binaries: tuple[str, ...]
    version_args: tuple[str, ...] = ()
    ldflags: str = "-s -w"
    seconds: int = 120

    @property
    def folder(self) -> Path:
        return TOOLS / self.module


PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        Part(
            name="kube-apiserver",
            version=_KUBERNETES,
            minimum=(1, 34),
            module="kubernetes",
            requires="k8s.io/kubernetes",
            package="k8s.io/kubernetes/cmd/kube-apiserver",
            binaries=("kube-apiserver",),
            version_args=("--version",),
            ldflags=_KUBERNETES_LDFLAGS,
            seconds=485,
        ),
        Part(
            name="kubectl",
            version=_KUBERNETES,
            minimum=(1, 34),
            module="kubernetes",
            requires="k8s.io/kubernetes",
            package="k8s.io/kubernetes/cmd/kubectl",
            binaries=("kubectl",),
            version_args=("version", "--client"),
            ldflags=_KUBERNETES_LDFLAGS,
            seconds=22,
        ),
        Part(
            name="etcd",
            version="3.6.16",
            minimum=(3, 5),
            module="etcd",
            requires="go.etcd.io/etcd/server/v3",
            package="go.etcd.io/etcd/server/v3",
            binaries=("etcd",),
            version_args=("--version",),
            seconds=120,
        ),
        Part(
            name="weaviate",
            version="1.39.0",
            minimum=(1, 33),
            module="weaviate",
            requires="github.com/weaviate/weaviate",
            package="github.com/weaviate/weaviate/cmd/weaviate-server",
            binaries=("weaviate-server", "weaviate"),
            seconds=390,
        ),
        Part(
            name="helm",
            version="4.3.1",
            minimum=(3, 17),
            module="helm",
            requires="helm.sh/helm/v4",
            package="helm.sh/helm/v4/cmd/helm",
            binaries=("helm",),
            version_args=("version", "--template", "{{.Version}}"),
            ldflags="-s -w -X helm.sh/helm/v4/internal/version.version=v4.3.1",
            seconds=141,
        ),
        *(
            Part(
                name=name,
                version=_KUBERNETES,
                minimum=(1, 34),
                module="kubernetes",
                requires="k8s.io/kubernetes",
                package=f"k8s.io/kubernetes/cmd/{name}",
                binaries=(name,),
                version_args=("--version",),
                ldflags=_KUBERNETES_LDFLAGS,
                seconds=seconds,
            )
            for name, seconds in (
                ("kube-controller-manager", 157),
                ("kube-scheduler", 8),
                ("kubelet", 21),
                ("kube-proxy", 10),
            )
        ),
        Part(
            name="coredns",
            version="1.15.0",
            minimum=(1, 11),
            module="coredns",
            requires="github.com/coredns/coredns",
            package="github.com/coredns/coredns",
            binaries=("coredns",),
            version_args=("-version",),
            seconds=167,
        ),
        Part(
            name="dex",
            version=_DEX,
            minimum=(2, 46),
            module="dex",
            requires="github.com/dexidp/dex",
            package="github.com/dexidp/dex/cmd/dex",
            binaries=("dex",),
            version_args=("version",),
            ldflags=f"-s -w -X main.version=v{_DEX}",
            seconds=60,
        ),
    )
}

SUITE = ("kube-apiserver", "kubectl", "etcd", "weaviate", "helm", "dex")
"""What the suite needs (`make build-tools`)."""

NODE = ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns")
"""What a whole node needs besides (`make cluster-test`)."""
