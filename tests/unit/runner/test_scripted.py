"""What the scripted endpoint makes of a task."""

from typing import Any

from toolcrib_runner import scripted


def test_the_script_obeys_call_lines_in_their_order() -> None:
    task = 'Do this:\ncall a {"x": 1}\n  call ns/b\ncall a {"x": 2}'
    assert scripted.plan(task, []) == [("a", '{"x": 1}'), ("ns__b", "{}"), ("a", '{"x": 2}')]


def test_the_script_picks_functions_by_words_and_fills_what_is_required() -> None:
    def function(name: str, about: str, **required: str) -> dict[str, Any]:
        properties = {n: {"type": t} for n, t in required.items()}
        return {
            "name": name,
            "description": about,
            "parameters": {"properties": properties, "required": [*required]},
        }

    offered = [
        function("calculator", "Compute an arithmetic expression", expression="string"),
        function("file_reader", "Read a text file of the shared folder", filename="string"),
        function("weather", "The weather of a city", city="string"),
    ]
    assert scripted.plan("Read the file guard_schedule.txt of the shared folder", offered) == [
        ("file_reader", '{"filename": "guard_schedule.txt"}')
    ]
    assert scripted.plan("compute the expression (310 / 4.5) + 12 please", offered) == [
        ("calculator", '{"expression": "(310 / 4.5) + 12"}')
    ]
    assert scripted.plan("nothing of that kind", offered) == []
