import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmdist.committee.fading import Weighting
from bcmdist.committee.ingest.uncommitted import Pending
from bcmdist.data.partition import Span
from bcmdist.experts.message import Message
from bcmdist.storage.entry import Entry


def message(value):
    return Message(np.array([value]), np.array([[value]]), value, 1)


def absorbed(pending, key, value, position=0):
    entry = Entry(key, key, 1, position=position)
    pending.add(message(value), pending.fading.at(position), {key: entry}, [])


def test_an_offset_waits_for_all_before_it():
    pending = Pending(Weighting())
    for offset, keys in ((10, "ab"), (20, "c"), (30, "")):
        pending.begin(offset, keys, [*keys, "known"])
    absorbed(pending, "c", 1.0)
    absorbed(pending, "b", 2.0)
    early = pending.take()
    assert (early.offset, set(early.entries)) == (None, {"b", "c"})
    assert early.keys == ("known", "c", "known")  # what is acknowledged by name waits for nobody
    assert "a" in pending
    assert "b" not in pending
    absorbed(pending, "a", 4.0)
    late = pending.take()
    assert late.offset == 30
    assert sorted(late.keys) == ["a", "b", "known"]
    assert early.message.evidence + late.message.evidence == 7.0
    assert pending.take().message is None


@given(st.permutations(range(8)), st.integers(1, 500))
def test_sums_are_weighted_as_of_the_newest_position_in_any_order(order, half_life):
    pending = Pending(Weighting("s", 0, half_life=float(half_life)))
    for k in order:
        entry = Entry(str(k), "", 1, position=100 * k)
        group = pending.fading.at(100 * k)  # what a task weights by
        pending.add(message(group.weight(100 * k) * (k + 1.0)), group, {str(k): entry}, [])
    newest = Weighting("s", 700, half_life=float(half_life))
    batch = pending.take()
    assert batch.fading == newest
    expected = sum(newest.weight(100 * k) * (k + 1.0) for k in range(8))
    assert batch.message.evidence == pytest.approx(expected, rel=1e-12)  # a few roundings of powers of two


def test_parts_are_kept_until_they_are_committed():
    pending, span = Pending(Weighting()), Span(0, 3)
    pending.begin(3, [span.key], [span.key])
    pending.add(message(1.0), pending.fading, {span.key: Entry(span.key, "", 3)}, [span])
    assert span.key in pending
    assert pending.take().parts == {span.key: span}
    assert span.key not in pending
