"""One real node for these tests, with the chart installed by helm; what it left behind is an error at the end.

The files are numbered, since the order saves time: installed once, toured, loaded, broken, uninstalled at last.
"""

import time
from collections.abc import Iterator

import pytest

import figures
from node_cluster import IMAGES, NodeCluster
from realparts import debian, lookup, nodeplan
from realparts.images import images
from realparts.node import Node
from realparts.remains import remains
from realparts.required import absent


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """The node, with the images imported."""
    try:
        debian.require(*debian.NODE)
        for part in (*nodeplan.PARTS, "helm"):
            lookup.path_of(part)
    except (debian.MissingPackagesError, lookup.MissingPartError) as error:
        absent(error)
    archives = images(IMAGES)
    began = time.monotonic()
    with Node() as up:
        figures.note("node ready after", f"{time.monotonic() - began:.1f} s")
        up.import_image(*archives)
        yield up
    left = remains(up.folder, up.at.number)
    assert not left, f"left behind: {left}"
    figures.note("left behind on this machine", "nothing")


@pytest.fixture(scope="session")
def cluster(node: Node) -> NodeCluster:
    """The release installed, the heist applied; measured until the first tool is discovered."""
    cluster = NodeCluster(node)
    began = time.monotonic()
    cluster.install()
    figures.note("helm install --wait", f"{time.monotonic() - began:.1f} s")
    cluster.apply_heist()
    token = cluster.token("heist", "safecracker")
    cluster.node.until(lambda: bool(cluster.discover(token)), timeout=120, interval=0.1)
    figures.note("chart install to first discovered tool", f"{time.monotonic() - began:.1f} s")
    cluster.wait_objects()
    node.kubectl("rollout", "status", "deployment/example-tools", "-n", "heist", "--timeout=110s")
    return cluster


@pytest.fixture(scope="session")
def safecracker(cluster: NodeCluster) -> str:
    """A token of the service account heist/safecracker."""
    return cluster.token("heist", "safecracker")


@pytest.fixture(scope="module", autouse=True)
def _no_loop_was_held(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module in which something held an event loop of ours fails at its end, unless it is known. Each module, since
    the pods are replaced and uninstalled in some."""
    items = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    names = {name for item in items for name in getattr(item, "fixturenames", ())}
    cluster = request.getfixturevalue("cluster") if "cluster" in names else None
    yield
    if cluster is not None:
        held = cluster.held_loops()
        figures.note(
            f"event loops held, not known ({request.module.__name__.rpartition('.')[2]})", str(len(held))
        )
        assert not held, "\n".join(held)


@pytest.fixture(autouse=True)
def _state_of_a_failure(request: pytest.FixtureRequest) -> Iterator[None]:
    """A failed test shows the pods and their last words."""
    yield
    report = getattr(request.node, "report_of_call", None)
    if report is not None and report.failed and "cluster" in request.fixturenames:
        print(request.getfixturevalue("cluster").state())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.report_of_call = report
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The figures, for the documentation to quote."""
    if said := figures.lines():
        terminalreporter.section("figures (make cluster-test)")
        for line in said:
            terminalreporter.write_line(line)
