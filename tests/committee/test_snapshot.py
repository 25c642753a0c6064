"""What is committed is first read as a reader would read it: a commit that nobody can load is never made."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist.api.gbcm import GBCM
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import CommitRefused
from bcmdist.learning.settings import Settings
from bcmdist.storage.entry import Entry

GIVEN = Settings(query=5, rows_per_expert=60, learn=False)


@pytest.fixture
def fitted(wave, tmp_path):
    model = str(tmp_path / "model")
    GBCM.fit(wave[0], GIVEN, model=model)
    return Snapshot.load(model)


def too_large(snapshot):
    snapshot.successor(snapshot.committee, [], query_asked=2**63)


def no_number(snapshot):
    snapshot.successor(snapshot.committee, [], degrees_estimated=np.nan)


def no_json(snapshot):
    snapshot.successor(snapshot.committee, [], data=b"bytes")


def an_offset_that_is_no_number(snapshot):
    snapshot.successor(snapshot.committee, [], offsets={"source": float("inf")})


def rows_that_do_not_add_up(snapshot):
    snapshot.successor(snapshot.committee, [Entry("/data.zarr/X[0:5]", "0" * 64, 5)])


def an_entry_of_another_type(snapshot):
    snapshot.successor(snapshot.committee, [replace(snapshot.ledger[0], digest=7), *snapshot.ledger[1:]], rewrite=True)


def a_scale_of_zero(snapshot):
    scaling = replace(snapshot.model.scaling, y_scale=0.0)
    other = replace(snapshot, model=replace(snapshot.model, scaling=scaling))
    other.successor(other.committee, [])


UNREADABLE = [
    too_large,
    no_number,
    no_json,
    an_offset_that_is_no_number,
    rows_that_do_not_add_up,
    an_entry_of_another_type,
    a_scale_of_zero,
]


@pytest.mark.parametrize("write", UNREADABLE)
def test_what_no_reader_accepts_is_not_committed(fitted, write):
    """Whatever part of it is wrong: no record is put, and the model is as it was."""
    with pytest.raises(CommitRefused, match="nothing was committed"):
        write(fitted)
    after = Snapshot.load(fitted.url)
    assert (after.commit, after.ledger) == (fitted.commit, fitted.ledger)


def test_the_part_that_is_wrong_is_named(fitted):
    named = r"commit \d+: .*whole number <= 9223372036854775807 as query_asked, found .*; nothing was committed"
    with pytest.raises(CommitRefused, match=named):
        too_large(fitted)
