"""A real single-node Kubernetes with real pods, isolated from the host; for tests and by hand.

    python tests/support/realparts/node.py up --folder F     stands until `down`; prints how to use it
    python tests/support/realparts/node.py import --folder F IMAGE…   images of docker, or archives (*.tar)
    python tests/support/realparts/node.py down --folder F

Needs root on Linux, Debian's containerd, runc, CNI plugins and iptables (`debian.py` installs them), and the
parts of a node (`build.py --node`). Network, mounts and processes are the node's own: pods, services and the
API server are reached from the host through a veth link, and nothing is left when the node has ended.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import httpx

if __package__ in (None, ""):
    # Run as a file: Python put this folder first, where `weaviate` would be the wrong one.
    sys.path.remove(str(Path(__file__).resolve().parent))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from realparts import debian, lookup, nodeimages, nodejail, nodeplan, nodestorage, processes, sandboxes

_JAIL = Path(nodejail.__file__).resolve()
_LONGEST_FOLDER = 60  # a Unix socket's path has 108 bytes, and containerd's are below it
_SLOWEST = 10.0  # seconds for an answer, while the node starts
_LOOK = 2.0  # seconds between two looks at pods that cannot start, while something is waited for


class Node:
    """One node with API server, etcd, kubelet, containerd, DNS and service addresses; a context manager.

    `folder` (which must exist) is used and kept instead of a temporary one; a node of that folder that ran
    before comes back with everything it held. `detached`: it stands until `down`, whoever started it.
    Raises lookup.MissingPartError or debian.MissingPackagesError if something is not on this machine,
    processes.NotReadyError with the tail of the log of what did not start.
    """

    def __init__(self, folder: Path | None = None, *, detached: bool = False) -> None:
        debian.require(*debian.NODE)
        sandboxes.require_plugins()
        self._kubectl = lookup.path_of("kubectl")
        self._detached = detached
        self._temporary = folder is None
        self.folder = (folder or Path(tempfile.mkdtemp(prefix="tcnode-"))).resolve()
        if len(str(self.folder)) > _LONGEST_FOLDER:
            raise ValueError(f"the folder's path is too long for the sockets in it: {self.folder}")
        self._lock, number = nodeplan.free_number(self.folder)
        self.at = nodeplan.Addresses(number)
        self.plan = nodeplan.write(
            self.folder, self.at, detached=detached, temporary=self._temporary and not detached
        )
        self.kubeconfig = self.folder / "admin.kubeconfig"
        self.socket = self.folder / "containerd.sock"
        self.url = f"https://{self.at.node}:{nodeplan.API_PORT}"
        self.ca_file = self.folder / "pki" / "ca.crt"
        self._keeper: subprocess.Popen[bytes] | None = None
        self._looked = 0.0

    def __enter__(self) -> Self:
        try:
            return self.up()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def up(self) -> Self:
        """Start the node and wait until it is Ready, with its storage class and volumes."""
        (self.folder / "init.pid").unlink(missing_ok=True)
        with (self.folder / "log" / "node.log").open("ab") as log:
            # Not tied to our life by a signal: it has to remove things after we are gone.
            self._keeper = subprocess.Popen(
                [sys.executable, str(_JAIL), "keep", str(self.folder / "plan.json")],
                stdin=subprocess.DEVNULL if self._detached else subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[self._lock.fileno()],
            )
        (self.folder / "keeper.pid").write_text(str(self._keeper.pid))
        self._wait("kube-apiserver", self._api_ready, 180)
        self.apply(*nodestorage.objects(self.folder))
        self._wait("kubelet", self._node_ready, 180)
        self._wait("kube-controller-manager", self._accounts_ready, 120)
        return self

    def down(self) -> None:
        """End everything at once, as a power cut would; the folder stays, and `up` brings the node back."""
        if self._keeper is not None:
            if self._keeper.stdin is None:
                if self._keeper.poll() is None:
                    self._keeper.send_signal(signal.SIGTERM)
            else:
                # it may have ended by itself, just now
                with contextlib.suppress(BrokenPipeError):
                    self._keeper.stdin.write(nodejail.KEEP_FOLDER)
                    self._keeper.stdin.flush()
                with contextlib.suppress(BrokenPipeError):
                    self._keeper.stdin.close()
            self._keeper.wait(120)
        self._keeper = None

    def reboot(self) -> None:
        """`down` and `up`: images, objects and volumes are kept, containers and memory are not."""
        self.down()
        self.up()

    def close(self) -> None:
        """End the node and remove a temporary folder."""
        self.down()
        self._lock.close()
        if self._temporary and not self._detached:
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- its programs ----

    @cached_property
    def env(self) -> dict[str, str]:
        """An environment for kubectl and helm that reaches this node and knows nothing of the user's."""
        places = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder), "KUBERC": "off"}
        own = {**places, "KUBECACHEDIR": str(self.folder / "kubectl-cache")}
        return processes.clean_environment({**own, **processes.GO_COMMANDS})

    def run(self, *argv: str, input: str | None = None, timeout: float = 120) -> str:
        """Run a program with `env`; what it printed. Raises AssertionError with what it said if it failed."""
        done = self.try_run(*argv, input=input, timeout=timeout)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr or done.stdout}"
        return done.stdout

    def try_run(
        self, *argv: str, input: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with `env`; the caller checks `returncode`.

        Raises sandboxes.SandboxError as `check_pods` does, while the program runs (`helm --wait`, `kubectl rollout`).
        """
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
        )
        deadline = time.monotonic() + timeout
        with process:
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        left = deadline - time.monotonic()
                        said, errors = process.communicate(input, timeout=max(min(left, _LOOK), 0.01))
                        return subprocess.CompletedProcess(argv, process.returncode, said, errors)
                    input = None  # what was begun goes on by itself
                    if time.monotonic() >= deadline:
                        raise subprocess.TimeoutExpired(argv, timeout)
                    self.check_pods()
            except BaseException:
                process.kill()
                raise

    def until(self, holds: Callable[[], bool], timeout: float = 60, interval: float = 0.1) -> None:
        """`processes.wait_until`, which ends at once where `check_pods` finds that a pod can never start."""

        def held() -> bool:
            if holds():
                return True
            self.check_pods()
            return False

        held.__name__ = getattr(holds, "__name__", "holds")
        processes.wait_until(held, timeout, interval)

    def check_pods(self) -> None:
        """Raises sandboxes.SandboxError if a pod has had no sandbox, for one and the same reason, for 10 s.

        Looks every two seconds at most; an API server that does not answer says nothing about pods.
        """
        if time.monotonic() - self._looked < _LOOK:
            return
        self._looked = time.monotonic()
        found = []
        for kind in (("events", "--field-selector", "reason=FailedCreatePodSandBox"), ("pods",)):
            argv = [str(self._kubectl), "get", *kind, "-A", "-o", "json", "--request-timeout=5s"]
            with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
                said = subprocess.run(
                    argv, capture_output=True, timeout=_SLOWEST, env=self.env, check=False
                ).stdout
                found.append(json.loads(said)["items"])
        if len(found) == 2 and (message := sandboxes.stuck(*found)):
            raise sandboxes.SandboxError(message)

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float = 120) -> str:
        """What kubectl printed, as the admin. Raises AssertionError with what it said if it failed."""
        return self.run(str(self._kubectl), *arguments, input=input, timeout=timeout)

    def try_kubectl(
        self, *arguments: str, input: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; the caller checks `returncode`."""
        return self.try_run(str(self._kubectl), *arguments, input=input, timeout=timeout)

    def get(self, *arguments: str) -> Any:
        """`kubectl get … -o json`, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, *objects: Mapping[str, Any]) -> str:
        """Apply objects."""
        return self.kubectl(
            "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )

    def logs(self, pod: str, namespace: str = "default", *more: str) -> str:
        """A pod's log (or `deploy/NAME`'s), empty if it has none yet."""
        done = self.try_kubectl("logs", "-n", namespace, pod, *more)
        return done.stdout

    def import_image(self, *images: str | Path, docker: Mapping[str, str] | None = None) -> None:
        """Bring images into the node: archives by their path, or names that docker has (`docker`: its environment)."""
        for image in images:
            nodeimages.import_image(self.socket, image, docker)

    def images(self) -> list[str]:
        """The names of the images that the node has."""
        ctr = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", "images", "list", "--quiet"]
        return subprocess.run(ctr, capture_output=True, text=True, check=True).stdout.split()

    def client(self) -> httpx.Client:
        """An HTTP client of the API server with the admin's rights; the caller closes it."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        context.load_cert_chain(self.folder / "pki" / "admin.crt", self.folder / "pki" / "admin.key")
        return httpx.Client(base_url=self.url, verify=context, trust_env=False, timeout=60)

    def wipe_volume(self, name: str) -> None:
        """Empty one of the volumes; nothing may be using it."""
        folder = self.folder / "volumes" / name
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    # ---- breaking it ----

    def pid_of(self, program: str) -> int:
        """The process id, seen from the host, of one of `nodeplan.PROGRAMS`. Raises LookupError."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if Path(words[0].decode()).name == program:
                    return pid
        raise LookupError(f"{program} does not run on this node")

    def pids(self) -> list[int]:
        """All processes of the node, its pods' included, seen from the host."""
        try:
            space = os.stat(f"/proc/{(self.folder / 'init.pid').read_text()}/ns/net").st_ino
            mounts = os.stat(f"/proc/{(self.folder / 'init.pid').read_text()}/ns/pid").st_ino
        except OSError:
            return []
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (
                    os.stat(entry / "ns/net").st_ino == space or os.stat(entry / "ns/pid").st_ino == mounts
                ):
                    found.append(int(entry.name))
        return found

    def container_pids(self, pod: Mapping[str, Any], container: str = "") -> list[int]:
        """The host's process ids of a pod's container (default: the first), by its cgroup."""
        statuses = pod["status"]["containerStatuses"]
        status = next(s for s in statuses if container in ("", s["name"]))
        ident = status["containerID"].rsplit("/", 1)[1]
        for root in nodejail.cgroups_of(self.plan["cgroup"]):
            for folder in root.rglob(ident):
                return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
        return []

    def kill(self, program: str) -> None:
        """SIGKILL one of the node's programs; it starts again after `nodejail.RESTART_AFTER`."""
        os.kill(self.pid_of(program), signal.SIGKILL)

    def hold(self, program: str) -> None:
        """Kill a program and keep it from starting again until `release`."""
        (self.folder / "hold" / program).touch()
        self.kill(program)

    def release(self, program: str) -> None:
        """Let a held program start; for the API server, wait until it serves."""
        (self.folder / "hold" / program).unlink()
        if program == "kube-apiserver":
            self._wait(program, self._api_ready, 180)

    def restart_apiserver(self) -> None:
        """Kill the API server and wait until it serves again."""
        old = self.pid_of("kube-apiserver")
        os.kill(old, signal.SIGKILL)
        processes.wait_until(lambda: not Path(f"/proc/{old}").exists(), timeout=60)
        self._wait("kube-apiserver", self._api_ready, 180)

    # ---- waiting ----

    def _api_ready(self) -> bool:
        return self._succeeds("get", "--raw", "/readyz")

    def _node_ready(self) -> bool:
        ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return self._succeeds("get", "node", nodeplan.NODE_NAME, "-o", ready, printing="True")

    def _accounts_ready(self) -> bool:
        return self._succeeds("get", "serviceaccount", "default", "-n", "default")

    def _succeeds(self, *arguments: str, printing: str = "") -> bool:
        """Whether kubectl does at once what it is told; not, where the API server keeps it waiting."""
        try:
            done = self.try_kubectl(*arguments, timeout=_SLOWEST)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0 and printing in done.stdout

    def _wait(self, program: str, holds: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not holds():
            ended = self._keeper is None or self._keeper.poll() is not None
            if ended or time.monotonic() > deadline:
                said = "the node ended" if ended else f"{program} is not ready after {timeout:g} s"
                raise processes.NotReadyError(f"{said}:\n{self.tail('node')}\n{self.tail(program)}")
            time.sleep(0.1)

    def tail(self, program: str, lines: int = 15) -> str:
        """The last lines of a program's log; `node` is what holds them together."""
        with contextlib.suppress(OSError):
            text = (self.folder / "log" / f"{program}.log").read_text(errors="replace")
            return "\n".join([f"--- {program}", *text.splitlines()[-lines:]])
        return f"--- {program}: no log"


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="node.py", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("do", choices=("up", "down", "import"))
    parser.add_argument("--folder", type=Path, required=True, help="where everything of the node is kept")
    parser.add_argument("images", nargs="*")
    options = parser.parse_intermixed_args(arguments)
    folder: Path = options.folder.resolve()
    if options.do == "down":
        return _down(folder)
    if options.do == "import":
        for image in options.images:
            nodeimages.import_image(folder / "containerd.sock", image)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    try:
        node = Node(folder, detached=True)
    except (RuntimeError, ValueError, lookup.MissingPartError) as error:
        # Nothing of ours runs yet: what does, is a node of that folder from before.
        print(error, file=sys.stderr)
        return 1
    try:
        node.up()
    except processes.NotReadyError as error:
        node.close()
        print(error, file=sys.stderr)
        return 1
    except BaseException:
        node.close()
        raise
    print(
        f"export KUBECONFIG={node.kubeconfig}\n"
        f"# API server {node.url}; pods {node.at.pods} and services {node.at.services} are reached from here"
    )
    return 0


def _down(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "keeper.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        processes.wait_until(lambda: not Path(f"/proc/{pid}").exists(), timeout=30)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
