"""What stands for a server's resources and prompts: published, in views, in the log and in what is decided from it again."""

import pytest

from published import binding, bot, server
from toolcrib import publishing
from toolcrib.audit import policy_records
from toolcrib.audit.stated_policy import StatedPolicy
from toolcrib.resources.kinds import parse
from toolcrib.resources.meta import API_VERSION
from toolcrib.resources.servers import ToolServer
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of
from toolcrib.wire.publish import Publish, Removed, Revision

pytestmark = pytest.mark.guarantee
NOW = 1_000.0


def at(seq: int) -> Revision:
    return Revision(epoch=1, seq=seq)


def replayed(*steps: Publish) -> tuple[Snapshot, Snapshot]:
    """The last snapshot, and what a log of all of them says it was."""
    snapshot, stated = Snapshot(), StatedPolicy()
    for step in steps:
        before, snapshot = snapshot, snapshot.apply(step)
        told = (
            policy_records.start(snapshot, ())
            if step.base is None
            else policy_records.changes(before, snapshot)
        )
        assert told is not None
        for action, fields in told:
            stated.take({"action": action, **fields})
    found = stated.at(str(snapshot.revision))
    assert found is not None
    return snapshot, found


def test_a_log_states_them_and_a_view_made_of_it_is_the_same() -> None:
    first = Publish(to=at(1), servers=(server(), server("other")), bindings=(binding(),))
    second = Publish(
        base=at(1),
        to=at(2),
        servers=(server("docs", prompts=False),),
        removed=Removed(servers=("team-a/other",)),
    )
    snapshot, stated = replayed(first, second)

    assert set(snapshot.parts) == {"team-a/docs:@resources"} == set(stated.parts)
    whole, again = view_of(bot(), snapshot, NOW), view_of(bot(), stated, NOW)
    assert set(whole.parts) == {"team-a/docs:@resources"}
    assert whole.digest == again.digest
    assert whole.tools == {}


def test_a_snapshot_is_another_one_with_a_server_and_the_same_once_it_is_gone() -> None:
    empty = Snapshot().apply(Publish(to=at(1)))
    served = empty.apply(Publish(base=at(1), to=at(2), servers=(server(),)))
    gone = served.apply(Publish(base=at(2), to=at(3), removed=Removed(servers=("team-a/docs",))))
    assert served.hash != empty.hash == gone.hash
    assert gone.parts == {}


def test_a_disabled_server_publishes_nothing() -> None:
    metadata = {"name": "docs", "namespace": "team"}
    spec = {"mcp": {"url": "https://x.test/mcp"}, "defaults": {"scopes": ["docs:use"]}, "state": "Disabled"}
    found = parse({"apiVersion": API_VERSION, "kind": "ToolServer", "metadata": metadata, "spec": spec})
    assert isinstance(found, ToolServer)
    assert publishing.server(found, None) is None
