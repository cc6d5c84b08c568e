"""What an agent has used."""

from toolcrib_runner.usage import Usage


def test_of_equally_used_tools_the_first_by_name_is_the_most_used() -> None:
    usage = Usage("a")
    for tool in ("b", "a", "b", "a"):
        usage.count(tool)
    assert usage.stats(0).most_used_tool == "a"
