"""When a server is asked again to tell of changes."""

from toolcrib_registry.upstream import reopening


def test_a_stream_that_breaks_is_asked_for_again_soon_and_one_that_floods_later() -> None:
    assert reopening.until_heard(0, refused=False, too_fast=False) == 0.5
    assert reopening.until_heard(99, refused=False, too_fast=False) == 60
    assert reopening.until_heard(0, refused=False, too_fast=True) == 15
    assert reopening.until_heard(99, refused=False, too_fast=True) == 600
    assert reopening.until_heard(0, refused=True, too_fast=False) == 600
