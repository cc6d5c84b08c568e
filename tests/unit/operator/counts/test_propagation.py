"""How long a change takes to be in force is measured once, from its first notice to the last confirmation."""

from toolcrib.wire.publish import Revision
from toolcrib_operator.counts.propagation import Propagation


def test_a_revision_is_measured_from_the_first_change_it_covers_to_the_last_confirmation() -> None:
    now, seen = [10.0], list[float]()
    propagation = Propagation(seen.append, clock=lambda: now[0])
    first, second = Revision(epoch=1, seq=1), Revision(epoch=1, seq=2)
    propagation.noticed()
    now[0] = 10.5
    propagation.noticed()
    propagation.turned(first)
    now[0] = 11.0
    propagation.noticed()
    propagation.turned(second)
    propagation.progressed(lambda revision: False)
    assert seen == []
    now[0] = 12.0
    propagation.progressed(lambda revision: revision == first)
    assert seen == [2.0]
    propagation.progressed(lambda revision: True)
    propagation.progressed(lambda revision: True)
    assert seen == [2.0, 1.0]


def test_changes_that_need_no_publish_are_not_measured() -> None:
    now, seen = [10.0], list[float]()
    propagation = Propagation(seen.append, clock=lambda: now[0])
    propagation.noticed()
    propagation.turned(None)
    now[0] = 20.0
    propagation.noticed()
    propagation.turned(Revision(epoch=1, seq=1))
    propagation.progressed(lambda revision: True)
    assert seen == [0.0]
