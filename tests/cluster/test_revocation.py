"""Revocation with all the real parts: three replicas, one of them (where we are root) in a network namespace."""

import asyncio
import contextlib
import functools
import json
import math
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from cluster import EXAMPLES, UNPROVEN, Cluster, Replica, counter
from isolated import IsolatedReplica, isolation_lacks, require_isolation
from manifests import manifest
from realparts.processes import wait_until
from realparts.required import require_real
from revocation_watch import WAYS, Eyes, crowd
from slow_backend import SlowBackend, slow_backend

pytestmark = [pytest.mark.real, pytest.mark.real, pytest.mark.guarantee]

BOUND = 5.0
"""Seconds in which each revocation is in force everywhere: far above what is measured (`make revocation`)."""
DEADLINE = 6
"""Seconds that `kubectl delete` of a binding waits for a replica that is away."""
MAX_AGE = 8.0
"""Seconds after which the isolated replica, without an operator, refuses calls."""


def binding(agent: str, *scopes: str, name: str = "", **spec: Any) -> str:
    """A manifest."""
    subjects = [{"kind": "ServiceAccount", "name": agent}]
    return _object("AgentScopeBinding", name or agent, subjects=subjects, scopes=list(scopes), **spec)


def tool(name: str, description: str, **spec: Any) -> str:
    """A manifest; its scope is `<name>:use`."""
    chosen = {"description": description, "scopes": [f"{name}:use"], "backend": {"none": {}}}
    return _object("Tool", name, **{**chosen, **spec})


def _object(kind: str, name: str, **spec: Any) -> str:
    return json.dumps(manifest(kind, name, "heist", **spec))


@pytest.fixture(scope="module")
def slow() -> Iterator[SlowBackend]:
    with slow_backend() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(slow: SlowBackend) -> Iterator[Cluster]:
    require_real("kube-apiserver", "etcd", "kubectl", "weaviate")
    third: Callable[[Cluster, str], Replica] = Replica
    if not isolation_lacks():
        third = functools.partial(IsolatedReplica, policy_max_age=MAX_AGE)
    flags = ("--heartbeat", "0.5", "--inventory", "2", "--removal-deadline", str(DEADLINE))
    election = ("--lease-duration", "8", "--lease-renew", "6", "--lease-retry", "1")
    place = {"backends": {"heist/slow": f"127.0.0.1:{slow.port}"}}
    with Cluster(
        replicas=2, further=[third], operator_flags=(*flags, *election, *UNPROVEN), registry=place
    ) as running:
        running.kubectl("apply", "-f", str(EXAMPLES / "heist"))
        running.kubectl("create", "service", "clusterip", "slow", "--tcp=80", "-n", "heist")
        for agent in ("victim", "bystander"):
            running.kubectl("create", "serviceaccount", agent, "-n", "heist")
        http = {"service": {"name": "slow", "port": 80}, "path": "/work", "method": "POST", "timeout": "60s"}
        apply(running, tool("slow", "Takes its time.", backend={"http": http}))
        apply(running, binding("bystander", "calculator:use", "database:read"))
        running.wait_ready("toolcrib")
        yield running


@pytest.fixture
def victim(cluster: Cluster) -> str:
    """The token of an agent, issued before anything is granted or revoked."""
    return cluster.token("heist", "victim")


@pytest.fixture(scope="module")
def bystander(cluster: Cluster) -> str:
    return cluster.token("heist", "bystander")


def apply(cluster: Cluster, *manifests: str) -> None:
    cluster.kubectl("apply", "-f", "-", input="\n---\n".join(manifests))


def delete(cluster: Cluster, name: str, *options: str) -> float:
    """Delete a binding; how long kubectl took."""
    start = time.monotonic()
    cluster.kubectl("delete", "agentscopebinding", name, "-n", "heist", *options)
    return time.monotonic() - start


def narrow(cluster: Cluster, name: str) -> None:
    """Edit a binding so that it grants nothing that there is."""
    cluster.kubectl(
        "patch", "asb", name, "-n", "heist", "--type=merge", "-p", '{"spec":{"scopes":["none:use"]}}'
    )


def urls(cluster: Cluster) -> list[str]:
    return [replica.url for replica in cluster.replicas]


def test_what_is_revoked_under_load_is_gone_everywhere_by_every_way_for_tokens_issued_before(
    cluster: Cluster, victim: str, bystander: str
) -> None:
    asyncio.run(_revoke_and_look(cluster, victim, bystander, 5))


async def _revoke_and_look(
    cluster: Cluster, victim: str, bystander: str, turns: int, replicas: int = 3
) -> None:
    """Grant and revoke, and see on so many replicas, under load, that it is gone in time."""
    places = urls(cluster)[:replicas]
    ways: list[tuple[Callable[[Cluster, str], object], list[float]]] = [(narrow, []), (delete, [])]
    async with crowd(places, bystander) as did, Eyes(places, victim) as eyes:
        for turn in range(turns):
            await asyncio.to_thread(apply, cluster, binding("victim", "calculator:use"))
            await eyes.until(True)
            start = time.perf_counter()
            change, took = ways[turn % 2]
            seen, _ = await asyncio.gather(eyes.until(False), asyncio.to_thread(change, cluster, "victim"))
            assert set(seen.first) == {(i, way) for i in range(replicas) for way in WAYS}
            took.append(max(seen.last.values()) - start)
            await eyes.until(False)
        await asyncio.to_thread(delete, cluster, "victim", "--ignore-not-found")
        # a watch of the crowd takes two seconds, which may be more than all of the above
        await asyncio.to_thread(wait_until, lambda: set(did.done) == set(WAYS), 60)
    assert not did.wrong
    # one moment in which this machine stands still is no news about the product
    for change, took in ways:
        assert statistics.median_low(took) < BOUND, (change, took)
        assert max(took) < 3 * BOUND, (change, took)


def test_an_answer_in_flight_is_cut_on_every_replica_before_kubectl_delete_returns(
    cluster: Cluster, victim: str, slow: SlowBackend
) -> None:
    apply(cluster, binding("victim", "slow:use"))
    wait_until(lambda: all(cluster.discover(victim, i) == ["slow"] for i in range(3)))
    answers: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda i=i: answers.append(cluster.call(victim, "slow", {}, i)))
        for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        slow.began.get(timeout=60)
    delete(cluster, "victim")
    given_up = [slow.given_up.get(timeout=BOUND) for _ in threads]
    for thread in threads:
        thread.join(60)
    assert [(a.status_code, a.json()["code"]) for a in answers] == [(403, "revoked")] * 3
    assert given_up == ["/work"] * 3
    # over the network: the isolated replica's metrics are the same, but not asked for here
    assert counter(cluster.replicas[0].metrics(), "toolcrib_calls_cut_total") >= 1


@pytest.mark.long
def test_revocation_is_as_quick_while_weaviate_is_dead_and_while_it_comes_back(
    cluster: Cluster, victim: str, bystander: str
) -> None:
    weaviate = cluster.weaviate
    assert weaviate is not None
    weaviate.kill()
    try:
        asyncio.run(_revoke_and_look(cluster, victim, bystander, 2))
    finally:
        coming = threading.Thread(target=weaviate.start)
        coming.start()
        try:
            asyncio.run(_revoke_and_look(cluster, victim, bystander, 3))
        finally:
            coming.join(120)
    hybrid(cluster, bystander)


def hybrid(cluster: Cluster, token: str) -> None:
    """Wait until every replica searches by the index again."""

    def searched() -> bool:
        return all(cluster.search(token, "work out a sum", i)["search_mode"] == "hybrid" for i in range(3))

    wait_until(searched, 60, 0.2)


@pytest.mark.long
def test_a_binding_deleted_while_every_replica_is_down_is_never_served_again(
    cluster: Cluster, victim: str, bystander: str
) -> None:
    apply(cluster, binding("victim", "calculator:use"))
    wait_until(lambda: cluster.discover(victim, 0) == ["calculator"])
    for replica in cluster.replicas:
        replica.child.kill()
    assert delete(cluster, "victim") < DEADLINE + 30
    with never_served(cluster, victim) as seen:
        for replica in cluster.replicas:
            replica.child.start()
        wait_until(lambda: all(_ready(replica) for replica in cluster.replicas), 120)
        wait_until(lambda: all("calculator" in cluster.discover(bystander, i) for i in range(3)))
    assert {"not_ready", "not_permitted"} <= seen


@contextlib.contextmanager
def never_served(cluster: Cluster, token: str, *, old_lists: bool = False) -> Iterator[set[str]]:
    """Call and list without a pause on every replica until the block ends: nothing may ever be granted. Yields what
    calls were answered instead. With `old_lists`, a replica may list what it knew until it is ready."""
    seen: set[str] = set()
    granted: list[str] = []
    over = threading.Event()

    def look(replica: Replica) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(headers=headers, trust_env=False, timeout=60, verify=False) as client:
            while not over.is_set():
                try:
                    counts = client.get(f"{replica.url}/readyz").status_code == 200 or not old_lists
                    called = client.post(f"{replica.url}/tools/calculator", json={"expression": "6 * 7"})
                    listed = client.get(f"{replica.url}/")
                except httpx.TransportError:
                    time.sleep(0.005)
                    continue
                seen.add(called.json().get("code", "granted"))
                if called.status_code == 200 or (counts and listed.json().get("tools")):
                    granted.append(f"{replica.name}: {called.text} {listed.text}")

    threads = [threading.Thread(target=look, args=(replica,)) for replica in cluster.replicas]
    for thread in threads:
        thread.start()
    try:
        yield seen
        time.sleep(0.2)  # a time in which nothing must happen
    finally:
        over.set()
        for thread in threads:
            thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert not granted


def _ready(replica: Replica) -> bool:
    try:
        return httpx.get(f"{replica.url}/readyz", trust_env=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.long
def test_what_is_deleted_while_operator_and_replicas_are_down_is_never_served_and_goes_when_they_are_back(
    cluster: Cluster, victim: str
) -> None:
    apply(cluster, binding("victim", "calculator:use"), binding("victim", "calculator:use", name="forced"))
    wait_until(lambda: all(cluster.discover(victim, i) == ["calculator"] for i in range(3)))
    held = ("get", "asb", "victim", "forced", "-n", "heist", "-o", "jsonpath={.items[*].metadata.finalizers}")
    wait_until(lambda: cluster.kubectl(*held).count("toolcrib.dev") == 2, 60, 0.2)
    operator = cluster.operators[0]
    operator.kill()
    # one waits for its finalizer, the other is gone for good: there is no operator that could have seen it go
    delete(cluster, "victim", "--wait=false")
    delete(cluster, "forced", "--wait=false")
    cluster.kubectl(
        "patch", "asb", "forced", "-n", "heist", "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )
    # the replicas know nothing of it, and say how old what they know is
    assert cluster.discover(victim, 0) == ["calculator"]
    age = counter(cluster.replicas[0].metrics(), "toolcrib_policy_age_seconds")
    assert age > 0
    for replica in cluster.replicas:
        replica.child.kill()
    with never_served(cluster, victim) as seen:
        for replica in cluster.replicas:
            replica.child.start()
        wait_until(lambda: "not_ready" in seen, 60)
        assert not any(_ready(replica) for replica in cluster.replicas)
        operator.start()
        wait_until(lambda: all(_ready(replica) for replica in cluster.replicas), 120)
        left = ("get", "asb", "-n", "heist", "-o", "name")
        wait_until(lambda: "victim" not in cluster.kubectl(*left), 60, 0.2)
    assert seen <= {"not_ready", "not_permitted"}


@pytest.mark.long
def test_an_old_index_put_back_shows_nothing_deleted_changed_or_revoked_and_is_mended(
    cluster: Cluster, victim: str, bystander: str
) -> None:
    weaviate = cluster.weaviate
    assert weaviate is not None
    old, new = "Polish the antique lamp in the cellar.", "Count the sheep of the meadow."
    scopes = ("relic:use", "chameleon:use")
    apply(cluster, tool("relic", old), tool("chameleon", old))
    apply(cluster, binding("bystander", *scopes, name="more"), binding("victim", *scopes))
    cluster.wait_ready("tools", "heist")
    hybrid(cluster, bystander)
    both = {"relic": old, "chameleon": old}
    wait_until(lambda: all(found(cluster, victim, old, i) == both for i in range(3)), 60, 0.1)

    weaviate.stop()
    data, backup = weaviate.directory / "data", weaviate.directory / "backup"
    shutil.copytree(data, backup)
    weaviate.start()
    cluster.kubectl("delete", "tool", "relic", "-n", "heist")
    apply(cluster, tool("chameleon", new))
    delete(cluster, "victim")
    cluster.wait_ready("tools", "heist")
    weaviate.stop()
    shutil.rmtree(data)
    backup.rename(data)

    modes: set[str] = set()
    coming = threading.Thread(target=weaviate.start)
    coming.start()

    def mended() -> bool:
        for i in range(3):
            assert found(cluster, victim, old, i) == {}
            answer = cluster.search(bystander, old, i)
            modes.add(answer["search_mode"])
            shown = {t["name"]: t["short_desc"] for t in answer["tools"]}
            assert "relic" not in shown
            assert shown.get("chameleon", new) == new
        lags = [counter(r.metrics(), "toolcrib_index_lag_tools") for r in cluster.replicas]
        lags = [lag for lag in lags if not math.isnan(lag)]  # of those that index
        return (
            bool(lags)
            and not coming.is_alive()
            and "hybrid" in modes
            and not any(lags)
            and not _held(cluster, "relic")
        )

    wait_until(mended, 120, 0.1)
    coming.join(120)
    assert found(cluster, bystander, new)["chameleon"] == new


def found(cluster: Cluster, token: str, query: str, replica: int = 0) -> dict[str, str]:
    """Names and short descriptions of what a search finds."""
    return {t["name"]: t["short_desc"] for t in cluster.search(token, query, replica)["tools"]}


def _held(cluster: Cluster, name: str) -> bool:
    """Whether Weaviate itself still holds a tool of this name."""
    assert cluster.weaviate is not None
    answer = cluster.weaviate.client.get("/v1/objects?limit=1000")
    return any(name in json.dumps(item["properties"]) for item in answer.json().get("objects", ()))


@pytest.mark.long
def test_a_replica_cut_off_refuses_calls_in_time_says_so_and_catches_up_without_a_moment_of_what_was_revoked(
    cluster: Cluster, victim: str, bystander: str
) -> None:
    require_isolation()
    isolated = cluster.replicas[2]
    assert isinstance(isolated, IsolatedReplica)
    safecracker = cluster.token("heist", "safecracker")
    apply(cluster, binding("victim", "calculator:use"))
    wait_until(lambda: all(cluster.discover(victim, i) == ["calculator"] for i in range(3)))
    with contextlib.ExitStack() as cut:
        cut.enter_context(isolated.cut_off())
        began = time.monotonic()
        # the others do not notice
        asyncio.run(_revoke_and_look(cluster, victim, bystander, 2, replicas=2))
        # here reads go on by what is known, and calls until that is too old
        assert cluster.discover(victim, 2) == ["calculator"]
        wait_until(lambda: _code(cluster, victim) == "policy_stale", 60)
        assert time.monotonic() - began > MAX_AGE - 1
        refused = cluster.call(bystander, "calculator", {"expression": "1"}, 2)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "10")
        said = httpx.get(f"{isolated.url}/readyz", trust_env=False, timeout=60)
        assert (said.status_code, said.json()["parts"]["policy"]["ready"]) == (503, False)
        assert counter(isolated.metrics(), "toolcrib_policy_age_seconds") > MAX_AGE
        assert "calculator" in cluster.discover(bystander, 2)
        assert all(map(_ready, cluster.replicas[:2]))
        # it misses many steps, and only the last takes back what it still grants the safecracker
        for step in range(12):
            scopes = ("calculator:use", "database:read", f"s{step}:use")
            apply(cluster, binding("bystander", *scopes))
        delete(cluster, "safecracker", "--wait=false")
        wait_until(lambda: not any(cluster.discover(safecracker, i) for i in range(2)))
        assert "calculator" in cluster.discover(safecracker, 2)
        with never_served(cluster, safecracker, old_lists=True) as seen:
            healed = time.monotonic()
            cut.close()
            wait_until(lambda: _ready(isolated), 90, 0.01)
            print(f"ready again after {time.monotonic() - healed:.1f} s")
            assert cluster.discover(safecracker, 2) == []
    assert seen <= {"policy_stale", "not_permitted"}
    assert cluster.call(bystander, "calculator", {"expression": "1"}, 2).status_code == 200


def _code(cluster: Cluster, token: str) -> str:
    return str(cluster.call(token, "calculator", {"expression": "1"}, 2).json().get("code"))
