"""The World: what is news, what is old, and when everything has been listed."""

import threading

from manifests import binding, tool
from toolcrib_operator.kinds.table import WATCHED
from toolcrib_operator.objects import Ref
from toolcrib_operator.world import World

CALCULATOR = Ref("Tool", "heist/calculator")


def versioned(
    version: int, description: str = "d", name: str = "calculator", **metadata: object
) -> dict[str, object]:
    manifest = tool(name, description=description)
    generation = {"uid": "u1", "generation": version, "resourceVersion": str(version)}
    return manifest | {"metadata": manifest["metadata"] | generation | metadata}


def test_a_version_that_is_older_than_the_one_held_is_ignored() -> None:
    world = World()
    world.upsert("Tool", versioned(5, "new"))
    change = world.change
    assert world.upsert("Tool", versioned(4, "old")) == change
    entry = world.get(CALCULATOR)
    assert entry is not None
    assert entry.resource_version == "5"


def test_a_list_that_is_older_than_the_watch_neither_revives_nor_removes() -> None:
    world = World()
    world.upsert("Tool", versioned(3))
    world.remove("Tool", "heist/calculator", "7")
    world.upsert("Tool", versioned(8, name="reader"))
    world.replace("Tool", [versioned(3)], "6")
    assert [e.ref.key for e in world.all("Tool")] == ["heist/reader"]
    world.replace("Tool", [], "9")
    assert world.all("Tool") == []


def test_an_object_made_again_under_its_old_name_is_another() -> None:
    world = World()
    world.upsert("Tool", versioned(3))
    world.remove("Tool", "heist/calculator", "4")
    world.upsert("Tool", versioned(5, uid="u2", generation=1))
    entry = world.get(CALCULATOR)
    assert entry is not None
    assert entry.uid == "u2"


def test_our_own_write_is_no_news_when_the_watch_repeats_it() -> None:
    world = World()
    world.upsert("Tool", versioned(3))
    world.take()
    world.wrote(CALCULATOR, "u1", "4", status={"name": "calculator"})
    world.upsert("Tool", versioned(4, generation=3) | {"status": {"name": "calculator"}})
    assert world.take()[0] == set()
    world.upsert("Tool", versioned(5, generation=3) | {"status": {"name": "tampered"}})
    assert world.take()[0] == {CALCULATOR}


def test_every_kind_has_to_be_listed_and_an_empty_list_counts() -> None:
    world = World()
    for kind in WATCHED:
        assert kind in world.unlisted
        world.replace(kind, [])
    assert world.unlisted == ()


def test_manifests_without_versions_get_a_uid_and_a_generation_that_counts_edits() -> None:
    world = World()
    world.upsert("Tool", tool("calculator"))
    world.upsert("Tool", tool("calculator"))
    world.upsert("Tool", tool("calculator", description="edited"))
    entry = world.get(CALCULATOR)
    assert entry is not None
    assert entry.resource is not None
    assert (entry.generation, entry.resource.metadata.generation) == (2, 2)
    assert entry.uid == entry.resource.metadata.uid == "manifest:Tool:heist/calculator"


def test_an_unreadable_object_keeps_its_findings_and_a_bad_status_harms_nothing() -> None:
    world = World()
    world.upsert("Tool", tool("calculator", scopes="all"))
    entry = world.get(CALCULATOR)
    assert entry is not None
    assert "spec.scopes" in str(entry.findings[0])
    world.upsert("Tool", tool("calculator") | {"status": {"conditions": "nonsense"}})
    entry = world.get(CALCULATOR)
    assert entry is not None
    assert entry.resource is not None


def test_changes_from_many_threads_are_all_taken() -> None:
    world = World()
    threads = [
        threading.Thread(target=lambda i=i: [world.upsert("Tool", tool(f"t{i}-{j}")) for j in range(50)])
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dirty, change = world.take()
    assert (len(dirty), change) == (200, 200)


def test_labels_and_annotations_of_our_kinds_cost_no_memory() -> None:
    marks = {f"k{i}": "v" * 50 for i in range(1000)}
    source = {"toolcrib.dev/source": "runtime"}
    for kind, manifest in (
        ("Tool", tool("calculator")),
        ("AgentScopeBinding", binding("planner", ["a:use"])),
    ):
        world = World()
        metadata = manifest["metadata"] | {"labels": marks | source, "annotations": marks}
        world.upsert(kind, manifest | {"metadata": metadata})
        (entry,) = world.all(kind)
        head = entry.head
        assert head is not None
        assert (entry.labels, head.metadata.labels, head.metadata.annotations) == (source, source, {})
