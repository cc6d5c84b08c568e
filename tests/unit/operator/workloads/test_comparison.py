"""A workload is as it is to be where all that we set is there, whatever others add."""

import copy
from typing import Any

import pytest

from toolcrib_operator.workloads.comparison import holds

WANTED: dict[str, Any] = {
    "spec": {
        "replicas": 1,
        "containers": [
            {
                "name": "agent", "image": "i", "args": ["a", "b"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}],
            }
        ],
    }
}  # fmt: skip


def test_defaults_order_and_what_others_add_are_no_difference() -> None:
    there = copy.deepcopy(WANTED)
    spec = there["spec"]
    spec["strategy"] = {"type": "RollingUpdate"}
    spec["containers"][0]["env"].reverse()
    spec["containers"][0]["env"].append({"name": "C", "value": "3"})
    spec["containers"][0]["volumeMounts"].reverse()
    spec["containers"].append({"name": "sidecar"})
    assert holds(WANTED, there)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("replicas",), 2),
        (("containers", 0, "image"), "other"),
        (("containers", 0, "args"), ["a", "b", "c"]),
        (("containers", 0, "args"), "ab"),
        (("containers", 0, "env"), [{"name": "A", "value": "1"}]),
        (("containers", 0, "env", 1, "value"), "3"),
        (("containers", 0, "volumeMounts", 1, "mountPath"), "/c"),
        (("containers",), []),
        (("containers",), None),
    ],
)
def test_what_others_change_or_take_away_is_one(path: tuple[Any, ...], value: Any) -> None:
    there = copy.deepcopy(WANTED)
    place: Any = there["spec"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert not holds(WANTED, there)
    del place[path[-1]]
    assert not holds(WANTED, there)
