"""Rendering the chart with the real helm, and looking into what came out.

A rendering is kept for the whole run, by its values: tests ask for the same ones again and again.
"""

import functools
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from realparts import lookup, processes
from realparts.apiserver import ApiServer
from realparts.required import require_real

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "toolcrib"
NEWEST = "1.37.0"
RELEASE, NAMESPACE = "toolcrib", "toolcrib-system"

Object = dict[str, Any]
# libyaml parses the 20,000 lines of the CRDs and dashboards twenty times faster than Python does
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Rendered:
    """The objects of one rendering, in helm's order."""

    objects: list[Object]

    def of(self, *kinds: str) -> list[Object]:
        """All objects of these kinds."""
        return [item for item in self.objects if item["kind"] in kinds]

    def find(self, kind: str, name: str) -> Object | None:
        """The object of this kind and name, None if it was not rendered."""
        return next((item for item in self.of(kind) if item["metadata"]["name"] == name), None)

    def one(self, kind: str, name: str) -> Object:
        """The object of this kind and name; AssertionError names what there is instead."""
        found = self.find(kind, name)
        assert found is not None, f"no {kind}/{name}; there are {[named(item) for item in self.objects]}"
        return found

    def pods(self) -> Iterator[tuple[str, Object]]:
        """Every pod template, hooks' and tests' too, as `{metadata, spec}` with what it is of."""
        for item in self.objects:
            spec = item.get("spec") or {}
            if "containers" in spec:
                yield named(item), item
            elif "containers" in ((spec.get("template") or {}).get("spec") or {}):
                yield named(item), spec["template"]


def named(item: Object) -> str:
    """`Kind/name`, as messages call an object."""
    return f"{item['kind']}/{item['metadata']['name']}"


def containers(pod: Object) -> list[Object]:
    """All containers of a pod template, those that run at its start too."""
    spec = pod["spec"]
    found: list[Object] = [*spec.get("initContainers", []), *spec["containers"]]
    return found


def render(
    values: Mapping[str, Any] | None = None,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    kube_version: str = NEWEST,
    api_versions: Sequence[str] = (),
    upgrade: bool = False,
) -> Rendered:
    """What `helm template` makes of these values; hooks and tests included.

    Raises AssertionError with helm's words where it refuses. The result is shared: do not change it.
    """
    done = _template(
        json.dumps(values or {}, sort_keys=True),
        release,
        namespace,
        kube_version,
        tuple(api_versions),
        upgrade,
    )
    assert done.returncode == 0, done.stderr
    return _objects(done.stdout)


def refused(values: Mapping[str, Any], *, kube_version: str = NEWEST) -> str:
    """What helm says against these values. Raises AssertionError where it takes them."""
    done = _template(json.dumps(values, sort_keys=True), RELEASE, NAMESPACE, kube_version, (), False)
    assert done.returncode != 0, "helm took these values"
    return done.stderr


def lint(values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """`helm lint --strict` with these values; the caller reads the result."""
    with _values_file(json.dumps(values or {})) as file:
        return helm("lint", "--strict", str(CHART), "--values", file, "--namespace", NAMESPACE)


def helm(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm with an environment and folders of its own; text out. The caller checks `returncode`."""
    require_real("helm")
    # what it remembers of an API server goes with that server's folder; without one it writes nothing
    home = (kubeconfig.parent if kubeconfig else Path(tempfile.gettempdir())) / "toolcrib-test-helm"
    settings = {"HOME": str(home), "HELM_CACHE_HOME": str(home / "cache"), **processes.GO_COMMANDS}
    if kubeconfig:
        settings["KUBECONFIG"] = str(kubeconfig)
    return subprocess.run(
        [str(lookup.path_of("helm")), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=processes.clean_environment(settings),
        cwd=ROOT,
    )


def try_install(
    server: ApiServer,
    *options: str,
    sets: Mapping[str, Any] | None = None,
    name: str = RELEASE,
    namespace: str = NAMESPACE,
) -> str:
    """Why helm refused to install or upgrade a release with these values and no others; empty if it did."""
    values = [
        word for path, value in (sets or {}).items() for word in ("--set-json", f"{path}={json.dumps(value)}")
    ]
    done = helm(
        *("upgrade", "--install", name, str(CHART), "-n", namespace, "--reset-values"),
        "--disable-openapi-validation",  # the API server checks what is applied to it
        *options,
        *values,
        kubeconfig=server.admin_kubeconfig,
    )
    return done.stderr if done.returncode else ""


@functools.cache
def _template(
    values: str,
    release: str,
    namespace: str,
    kube_version: str,
    api_versions: tuple[str, ...],
    upgrade: bool,
) -> subprocess.CompletedProcess[str]:
    with _values_file(values) as file:
        command = ["template", release, str(CHART), "--namespace", namespace, "--values", file]
        command += ["--kube-version", kube_version]
        for version in api_versions:
            command += ["--api-versions", version]
        if upgrade:
            command.append("--is-upgrade")
        return helm(*command)


@functools.cache
def _objects(text: str) -> Rendered:
    documents = (_document(part) for part in text.split("\n---\n"))
    return Rendered([item for item in documents if item])


@functools.cache
def _document(text: str) -> Any:
    """One object: those that do not change, the definitions above all, are parsed once in a run."""
    return yaml.load(text, Loader=_LOADER)


@contextmanager
def _values_file(values: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="toolcrib-values-") as file:
        file.write(values)
        file.flush()
        yield file.name
