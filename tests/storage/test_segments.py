"""Segments of the ledger: what is stored is read back, and found, as in a list of entries."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcmdist.errors import CommitRefused, ModelDamaged
from bcmdist.storage import ledger as ledgers
from bcmdist.storage.commits import open_store
from bcmdist.storage.entry import Entry
from bcmdist.storage.ledger import Ledger
from bcmdist.storage.segment import Segment, encode, joined_segments

NUMBERS = st.floats(-1e300, 1e300)
HASHES = st.integers(0, 5).map(lambda k: hashlib.sha256(bytes([k])).hexdigest())


@st.composite
def ledgers_of_ranges(draw):
    """Entries with disjoint rows of some arrays, in any order."""
    entries = []
    of_hash = draw(st.booleans())
    for array in draw(st.lists(st.text(st.characters(codec="utf-8"), max_size=6), unique=True, max_size=4)):
        stop = 0
        for gap, rows in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=6)):
            start, stop = stop + gap, stop + gap + rows
            entries.append(
                Entry(
                    f"{array}/X[{start}:{stop}]",
                    draw(HASHES) if of_hash else draw(st.sampled_from(["", "a", "b"])),
                    rows,
                    draw(st.floats(0, 1e300)),
                    at=draw(st.sampled_from(["", "running", "0" * 64])),
                    state=draw(st.just("") | HASHES),
                    position=draw(st.none() | st.integers(0, 2**63 - 1)),
                    arrival=tuple(draw(st.just([]) | st.lists(NUMBERS, min_size=3, max_size=3))),
                    excess_loss=tuple(draw(st.just([]) | st.lists(NUMBERS, min_size=2, max_size=2))),
                    densities=draw(st.none() | st.floats(0, 1e300)),
                    query=draw(st.integers(0, 3)),
                )
            )
    return draw(st.permutations(entries))


@settings(max_examples=150, deadline=None)
@given(entries=ledgers_of_ranges(), cuts=st.lists(st.integers(0, 24), max_size=3), most=st.integers(1, 30))
def test_what_is_stored_is_read_and_found(entries, cuts, most):
    """Entries in several segments, and in those that are made of them, are those of the list."""
    ends = [0, *sorted(min(cut, len(entries)) for cut in cuts), len(entries)]
    parts = [Segment(encode(entries[a:b]), "here") for a, b in itertools.pairwise(ends) if b > a]
    merged = [Segment(data, "here") for data in joined_segments(parts, most)] if parts else []
    assert all(len(part) <= most for part in merged)
    for segments in (parts, merged):
        ledger = Ledger([ledgers.LedgerPart("", one.summary, lambda one=one: one) for one in segments])
        assert ledger == entries
        assert [ledger[k] for k in range(len(entries))] == entries
        assert ledger[1:5] == entries[1:5]
        assert (len(ledger), ledger.rows) == (len(entries), sum(entry.rows for entry in entries))
        assert ledger.queries == {entry.query for entry in entries}
        assert ledger.latest_arrivals(3) == [entry for entry in entries if entry.arrival][-3:]
        for entry in entries:
            assert ledger.find(entry.key) == entry
            assert ledger.of_digest(entry.digest) == [one for one in entries if one.digest == entry.digest]
            array, _, rows = entry.key.rpartition("[")
            start, stop = map(int, rows.rstrip("]").split(":"))
            assert ledger.find(f"{array}[{start}:{stop + 1}]") is None
            wanted = [e for e in entries if e.key.startswith(f"{array}[") and _shares(e, start - 1, stop + 2)]
            assert {e.key for e in ledger.overlapping(array, start - 1, stop + 2)} == {e.key for e in wanted}
            assert ledger.knows(array)
        assert not ledger.knows("nothing")
        assert ledger.of_digest("0" * 64) == ledger.of_digest("nothing") == []


def _shares(entry, start, stop):
    low, high = map(int, entry.key.rpartition("[")[2].rstrip("]").split(":"))
    return low < stop and high > start


def entries(count, start=0):
    return [Entry(f"/d/X[{k}:{k + 1}]", hashlib.sha256(b"%d" % k).hexdigest(), 1) for k in range(start, start + count)]


def test_full_segments_are_not_merged(tmp_path, monkeypatch):
    """A commit rewrites no more than a full segment, and what is absorbed stays in order."""
    monkeypatch.setattr(ledgers, "MOST_ENTRIES", 16)
    store, segments, lengths = open_store(tmp_path / "model"), (), []
    for k in range(50):
        segments = store.extended(segments, entries(1, k))
        lengths = [len(store.segment(digest)) for digest in segments]
        assert max(lengths) <= 16
        assert sum(length < 16 for length in lengths) <= 5
    assert lengths[:3] == [16, 16, 16]
    assert store.stored_ledger(segments) == entries(50)
    many = store.extended((), entries(40))
    assert [len(store.segment(digest)) for digest in many] == [16, 16, 8]


def test_a_ledger_is_opened_where_it_is_needed(tmp_path):
    store = open_store(tmp_path / "model")
    segments = store.extended(store.extended((), entries(8)), entries(1, 8))
    store.commit(1, arrays={}, facts={}, segments=segments, offsets={})
    ledger = store.load(1, ledger=False).ledger
    (tmp_path / "model" / "blobs" / segments[0]).unlink()
    assert (len(ledger), ledger.rows) == (9, 9)
    with pytest.raises(ModelDamaged, match="expected a file, found none"):
        ledger.find("/d/X[3:4]")
    with pytest.raises(ModelDamaged, match="expected a file, found none"):
        store.load(1)


def test_what_one_ledger_has_and_a_later_one_lacks():
    before = Ledger.of(entries(4))
    assert before.left_by(before.extended(entries(2, 4))) == []
    assert before.left_by(Ledger.of(entries(3, 1))) == entries(1)


ALTERED = {
    "cut": (lambda data: data[: len(data) // 2], "bytes in all"),
    "header": (lambda data: data.replace(b'"lines":8', b'"lines":9'), "expected 9 lines, or one for all"),
    "dtype": (lambda data: data.replace(b'"<f8"', b'"<f2"', 1), "expected a dtype of"),
    "column": (lambda data: data.replace(b'"rows"', b'"Rows"'), "expected the columns of ledger entries"),
    "order": (lambda data: _with(data, "by_digest", np.zeros(8, np.uint32)), "a permutation of 8 entries"),
    "other order": (lambda data: _with(data, "by_digest", np.arange(8, dtype=np.uint32)), "in the order by_digest"),
    "start": (lambda data: _with(data, "start", np.arange(8)[::-1]), "in the order by_rows|each partition once"),
    "codes": (lambda data: data.replace(b'"array.codes"', b'"array.cedes"'), "expected texts of array"),
}


def _with(data, name, values):
    """The bytes of a segment with other values of a column."""
    found = Segment(data, "here").columns.numbers[name]
    return data.replace(found.tobytes(), values.astype(found.dtype).tobytes())


@pytest.mark.parametrize("name", ALTERED)
def test_what_is_no_segment_is_refused(name):
    alter, expected = ALTERED[name]
    data = encode(entries(8))
    altered = alter(data)
    assert altered != data
    with pytest.raises(ModelDamaged, match=expected):
        Segment(altered, "here")


@pytest.mark.parametrize(
    "entry",
    [
        Entry("k", "", -1),
        Entry("k", "", 1, weight=np.nan),
        Entry("k", "", 1, weight=-1.0),
        Entry("k", "", 2**64),
        Entry("k", "", 1, arrival=(np.inf, 0.0)),
        Entry("k", "", 1, excess_loss=(1.0,)),
        Entry("k", "", 1, position=-2),
    ],
)
def test_what_no_reader_accepts_is_not_stored(entry, tmp_path):
    with pytest.raises(CommitRefused):
        open_store(tmp_path / "model").put_segment([entry])
