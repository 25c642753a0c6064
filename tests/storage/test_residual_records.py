"""Residual records as arrays of a commit: what is written for a ledger is read back for the same entries."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist.errors import ModelDamaged
from bcmdist.storage.entry import Entry, ResidualRecord
from bcmdist.storage.ledger import Ledger
from bcmdist.storage.residual_records import WRITTEN, residual_arrays, with_residuals


def record(rng, rows, *, committee=True, local=False):
    errors = (rng.standard_normal(rows) if one else None for one in (committee, local))
    return ResidualRecord(rng.standard_normal((rows, 3)), *errors)


def ledger_of(*records, digest=None):
    names = (digest or f"{number:064x}" for number in range(len(records)))
    pairs = enumerate(zip(names, records, strict=True))
    return [Entry(f"k{number}", name, 9, residuals=one) for number, (name, one) in pairs]


def bare(entries):
    return Ledger.of(replace(entry, residuals=None) for entry in entries)


def assert_same(found, expected):
    assert [entry.key for entry in found] == [entry.key for entry in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one.residuals is None) == (other.residuals is None), one.key
        if one.residuals is not None and other.residuals is not None:
            assert one.residuals.counts == other.residuals.counts
            np.testing.assert_array_equal(one.residuals.table(), other.residuals.table())


def test_records_are_read_as_they_were_written(rng):
    both, local = record(rng, 4, local=True), record(rng, 2, committee=False, local=True)
    ledger = ledger_of(record(rng, 3), None, both, local)
    arrays = residual_arrays(ledger)
    assert arrays["residuals"].shape == (9, 5)
    assert_same(with_residuals(bare(ledger), arrays, "here"), ledger)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_partitions_with_the_same_rows_keep_their_own_records(which, rng):
    records = [record(rng, 2) if number == which else None for number in range(3)]
    ledger = ledger_of(*records, digest="ab" * 32)
    assert_same(with_residuals(bare(ledger), residual_arrays(ledger), "here"), ledger)


def test_without_records_there_are_no_arrays(rng):
    ledger = ledger_of(None, ResidualRecord(np.zeros((0, 3)), np.zeros(0)))
    assert residual_arrays(ledger) == {}
    assert with_residuals(bare(ledger_of(None)), {}, "here") == ledger_of(None)


def test_a_record_without_its_entry_is_refused(rng):
    ledger = ledger_of(record(rng, 3), record(rng, 2))
    arrays = residual_arrays(ledger)
    assert set(arrays) == set(WRITTEN)
    with pytest.raises(ModelDamaged, match="expected residuals of partitions in the ledger, once each"):
        with_residuals(bare(ledger[:1]), arrays, "here").opened()
