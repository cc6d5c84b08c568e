"""What may hold an event loop is known, and may only become less."""

import held_loops

LEFT = {"toolcrib.process.garbage.Heap.make_pass"}
"""Never add to it: mend what holds the loop. Take out what was mended, here and in the file."""
LINE = '{"level": "warning", "message": "the main event loop was held for 180 ms by a.b", "stack": ["x.y", "a.b"]}'
TEXT = "12:00:00 WARNING toolcrib.process.watchdog: the main event loop was held for 180 ms by a.b stack=['x.y', 'a.b']"


def test_the_list_of_what_may_hold_a_loop_only_becomes_shorter() -> None:
    assert set(held_loops.known()) == LEFT


def test_every_function_of_the_list_exists() -> None:
    import importlib

    for name in held_loops.known():
        module, attributes = name, []
        while True:
            try:
                found = importlib.import_module(module)
                break
            except ModuleNotFoundError:
                module, _, last = module.rpartition(".")
                attributes.insert(0, last)
        for attribute in attributes:
            found = getattr(found, attribute)


def test_what_the_metrics_count_and_the_log_no_longer_tells_is_found() -> None:
    metrics = 'toolcrib_loop_held_total{place="a.b"} 2.0\ntoolcrib_loop_held_total{place="c.d"} 1.0\n'
    assert held_loops.unknown_of(metrics, [LINE], but=["x.y", "c.d"]) == [
        "a.b: 1 times that the log no longer tells of"
    ]
    assert held_loops.unknown_of(metrics, [LINE, LINE], but=["a.b", "c.d"]) == []
    assert held_loops.unknown_of("", [LINE], but=["c.d"]) == [LINE]


def test_a_held_loop_is_found_in_both_forms_of_the_log_and_spared_by_a_function_of_its_stack() -> None:
    assert held_loops.unknown([LINE, TEXT, "another line"], but=[]) == [LINE, TEXT]
    assert held_loops.unknown([LINE, TEXT], but=["x.y"]) == []
    assert held_loops.unknown([LINE, TEXT], but=["x.yy", "y", "x"]) == [LINE, TEXT]
