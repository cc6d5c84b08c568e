"""A log says which version of the authorizer decided, so that another version is not taken for an error of the log."""

import hashlib

import pytest

from replay_worlds import ReplayWorld
from toolcrib.authorizer import DECIDER_VERSION, Action, decide
from toolcrib.snapshot import Snapshot
from toolcrib.view import view_of

pytestmark = pytest.mark.guarantee

DECIDED = {
    1: "971993de65aa8eeb8249757402cc609fc99b7fb6ee10d22749ae6df1af3e96b1",
    2: "0f57f6944795fe6ee66cb06a04c2b8fd71419bfd99155c9aa83fa3f0be50a447",
    3: "35c915feab98bd9a18018152972b6a743ee7ba9736925b726119ffe101240e06",
}
"""By version, what was decided in worlds that are the same in every run. An entry is never changed once it was released.
Version 2 knows quarantined tools, as its worlds do, version 3 suspended agents."""


def test_who_changes_what_is_decided_changes_the_version_too() -> None:
    digest = hashlib.sha256()
    for seed in range(40):
        world = ReplayWorld(seed)
        snapshot = Snapshot().apply(world.publish())
        for step in range(6):
            if step:
                snapshot = snapshot.apply(world.change())
            for _ in range(3):
                who, now = world.identity(), world.moment()
                for tool in snapshot.tools.values():
                    found = decide(who, tool, Action.CALL, snapshot.policy, now)
                    by = found.binding and (found.binding.uid, found.binding.generation)
                    digest.update(
                        repr((found.allowed, str(found.reason), by, str(found.denial or ""))).encode()
                    )
                digest.update(view_of(who, snapshot, now).digest.encode())
    assert DECIDED[DECIDER_VERSION] == digest.hexdigest(), (
        "decisions, or digests of views, are not what they were: bump DECIDER_VERSION and add its digest here"
    )
