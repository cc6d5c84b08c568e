"""`make cluster-demo`: the cluster tour on loopback, on a real API server and a real Weaviate, step by step.

Everything is a process of its own and ends with this one, and no file stays, also where a signal ends it. `--keep`
leaves it running until Ctrl-C and prints how to reach it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from cluster import EXAMPLES, Cluster
from realparts.lookup import MissingPartError
from realparts.processes import Child, clean_environment, free_port, wait_until
from toolcrib_cli import output

CHANGES = EXAMPLES / "access" / "changes"
"""A grant beside those of the heist."""
CREW = EXAMPLES / "cluster" / "heist-agents.yaml"
RUNS_AGENTS = (
    "--agent-namespaces", "heist", "--agent-image", "toolcrib:0.1.0", "--agent-registry-url", "https://toolcrib.test",
)  # fmt: skip


def main() -> int:
    """Run the tour; 0 if every step did what it says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C")
    arguments = parser.parse_args()
    started = time.monotonic()

    def say(text: str) -> None:
        output.line(f"{time.monotonic() - started:6.1f} s  starting {text}", style="dim")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, interrupt)
    try:
        with (
            scratch(),
            Cluster(replicas=2, operators=2, say=say, operator_flags=RUNS_AGENTS) as cluster,
        ):
            tour(cluster)
            if arguments.keep:
                keep(cluster)
    except MissingPartError as error:
        output.line(f"error: {error}", style="bold red", stderr=True)
        output.line("  hint: make build-tools", stderr=True)
        return 3
    except KeyboardInterrupt as error:
        with contextlib.suppress(OSError):  # the terminal may be what went away
            output.line("interrupted; everything that was started has ended")
        return 128 + (error.args[0] if error.args else signal.SIGINT)
    output.line("everything that was started has ended")
    return 0


def interrupt(number: int, frame: object) -> None:
    """A signal handler: ends the tour as Ctrl-C does, once."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


@contextlib.contextmanager
def scratch() -> Iterator[None]:
    """One folder for every temporary file, ours and those of what we start: it goes, whatever they leave."""
    with tempfile.TemporaryDirectory(prefix="toolcrib-demo-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        yield


def tour(cluster: Cluster) -> None:
    """The steps of the README's cluster tour, each shown with what it printed."""
    output.heading("1. Apply tools and grants")
    show(f"kubectl apply -f {EXAMPLES.name}/heist/")
    print(cluster.kubectl("apply", "-f", str(EXAMPLES / "heist")), end="")
    begun = time.monotonic()
    cluster.wait_ready("toolcrib", "heist")
    output.line(
        f"all Ready (published to 2 replicas, indexed in Weaviate, read back) after {time.monotonic() - begun:.1f} s"
    )
    show("kubectl get toolcrib -n heist")
    print(cluster.kubectl("get", "toolcrib", "-n", "heist"), end="")

    output.heading("2. Agents discover exactly their tools, by URL and service-account token")
    tokens = {name: cluster.token("heist", name) for name in ("planner", "hacker", "safecracker")}
    for name, token in tokens.items():
        output.line(f"{name}: {', '.join(cluster.discover(token)) or 'nothing: no binding names it'}")

    output.heading("3. An agent process works on a task: discover, call through the registry, count")
    run_agent(cluster, tokens["safecracker"])

    output.heading("4. The call is counted")
    for line in cluster.replicas[0].metrics().splitlines():
        if line.startswith("toolcrib_calls_total{"):
            output.line(line)

    output.heading("5. What it may not use does not exist for it")
    for tool in ("database_query", "no_such_tool"):
        answer = cluster.call(tokens["safecracker"], tool, {"query": "select 1"})
        output.line(f"safecracker calls {tool}: {answer.status_code} {answer.json()['code']}")

    output.heading("6. A bad manifest is refused at apply")
    bad = "apiVersion: toolcrib.dev/v1alpha1\nkind: Tool\nmetadata: {name: bad, namespace: heist}\nspec: {scopes: [], backend: {none: {}}}\n"
    for line in cluster.kubectl("apply", "-f", "-", input=bad, check=False).strip().splitlines():
        output.line(line)

    output.heading("7. Grant and revoke now")
    begun = time.monotonic()
    show(f"kubectl apply -f {EXAMPLES.name}/access/changes/")
    print(cluster.kubectl("apply", "-f", str(CHANGES)), end="")
    wait_until(lambda: queries(cluster, tokens["safecracker"]) == [200, 200], timeout=30, interval=0.05)
    output.line(
        f"after {time.monotonic() - begun:.2f} s the safecracker queries the database on both replicas"
    )
    begun = time.monotonic()
    show(f"kubectl delete -f {EXAMPLES.name}/access/changes/")
    print(cluster.kubectl("delete", "-f", str(CHANGES)), end="")
    answers = queries(cluster, tokens["safecracker"])
    output.line(f"back after {time.monotonic() - begun:.2f} s; its queries on both replicas: {answers}")

    output.heading("8. The leading operator is killed; the other takes over")
    leader = cluster.leader()
    begun = time.monotonic()
    next(o for o in cluster.operators if o.name == leader).kill()
    wait_until(lambda: cluster.leader() not in ("", leader), timeout=40, interval=0.2)
    print(cluster.kubectl("apply", "-f", str(CHANGES)), end="")
    wait_until(lambda: len(cluster.discover(tokens["safecracker"])) == 2, timeout=30)
    output.line(
        f"{leader} killed, {cluster.leader()} leads and has published after {time.monotonic() - begun:.1f} s"
    )
    run_by_the_operator(cluster, tokens["hacker"])


def run_by_the_operator(cluster: Cluster, hacker: str) -> None:
    """Agents as objects: what the operator makes of them, and one of them suspended and resumed."""
    output.heading("9. The operator runs Agents (there is no kubelet here, so no pod of theirs starts)")
    account = ("--serviceaccount", "toolcrib-system:toolcrib-operator", "-n", "heist")
    cluster.kubectl("create", "rolebinding", "toolcrib-agents", "--clusterrole", "toolcrib-agents", *account)
    show(f"kubectl apply -f {EXAMPLES.name}/cluster/{CREW.name}")
    print(cluster.kubectl("apply", "-f", str(CREW)), end="")
    for name in ("planner", "safecracker", "hacker"):
        deployed = ("--for=condition=Deployed", f"agents.toolcrib.dev/{name}", "-n", "heist", "--timeout=60s")
        cluster.kubectl("wait", *deployed)
    for kinds in ("agents.toolcrib.dev", "deployments,jobs -l app.kubernetes.io/component=agent"):
        show(f"kubectl get {kinds} -n heist")
        print(cluster.kubectl("get", *kinds.split(), "-n", "heist"), end="")
    before = cluster.discover(hacker)
    for suspended, wanted in (("true", []), ("false", before)):
        patch = f'{{"spec":{{"suspended":{suspended}}}}}'
        begun = time.monotonic()
        show(f"kubectl patch agents.toolcrib.dev hacker -n heist --type=merge -p '{patch}'")
        cluster.kubectl("patch", "agents.toolcrib.dev", "hacker", "-n", "heist", "--type=merge", "-p", patch)
        wait_until(lambda w=wanted: discovered(cluster, hacker) == [w, w], timeout=30, interval=0.05)  # type: ignore[misc]
        took = time.monotonic() - begun
        output.line(f"after {took:.2f} s hacker discovers on both replicas: {', '.join(wanted) or 'nothing'}")


def discovered(cluster: Cluster, token: str) -> list[list[str]]:
    """What an agent discovers on each of the two replicas."""
    return [cluster.discover(token, replica) for replica in range(2)]


def queries(cluster: Cluster, token: str) -> list[int]:
    """The status of a query to the database, on each of the two replicas."""
    return [cluster.call(token, "database_query", {"query": "select 1"}, r).status_code for r in range(2)]


def run_agent(cluster: Cluster, token: str) -> None:
    """One agent, one task, one scripted model (it says what it is)."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "token"
        file.write_text(token)
        port = free_port()
        argv = [sys.executable, "-m", "toolcrib_runner.scripted", "--port", str(port)]
        with Child(
            "scripted model", argv, log=Path(folder) / "model.log", env=clean_environment({})
        ) as model:
            model.wait_ready(lambda: "http" in (Path(folder) / "model.log").read_text(), timeout=30)
            command = [
                sys.executable, "-m", "toolcrib_cli", "agent", "run", "--name", "safecracker",
                "--registry-url", cluster.url, "--token-file", str(file),
                "--model-url", f"http://127.0.0.1:{port}/v1", "--model", "toolcrib-scripted",
                "--task", 'call calculator {"expression": "310 / 4.5"}', "--log-level", "warning",
            ]  # fmt: skip
            show("toolcrib agent run --name safecracker --registry-url … --token-file … --task …")
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            for line in (done.stdout.strip() or done.stderr.strip()).splitlines():
                output.line(line)


def keep(cluster: Cluster) -> None:
    """Wait for Ctrl-C, having said how to reach everything."""
    output.heading("Running until Ctrl-C")
    output.line(f"export KUBECONFIG={cluster.api.admin_kubeconfig}")
    output.line(f"export TOOLCRIB_URL={cluster.url}")
    output.line(
        "kubectl create token safecracker -n heist --audience toolcrib > token; toolcrib tools --token-file token"
    )
    output.line(json.dumps({r.name: {"agents": r.url, "admin": r.admin_url} for r in cluster.replicas}))
    signal.pause()


def show(command: str) -> None:
    """The command that a person would type."""
    output.line(f"$ {command}", style="bold cyan")


if __name__ == "__main__":
    raise SystemExit(main())
