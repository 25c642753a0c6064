"""Two identical fits of one new model directory at the same time: one commits, the other ends in a conflict."""

import pytest

from bcmdist.api.gbcm import GBCM
from bcmdist.errors import CommitConflict
from bcmdist.learning.evidence.cached import CachedObjective
from bcmdist.learning.settings import Settings
from bcmdist.storage.commits import open_store

QUICK = Settings(query=5, rows_per_expert=60, kernel="se", mean="constant", effort="quick", noise="constant")


@pytest.mark.parametrize("evaluations", [0, 2])
def test_the_slower_of_two_identical_fits_ends_in_a_conflict(wave, tmp_path, monkeypatch, evaluations):
    """The other fit runs from its beginning to its end while this one waits for an evaluation."""
    data, model = wave[0], str(tmp_path / "model")
    evaluate, calls = CachedObjective.__call__, []

    def interrupted(objective, *where):
        calls.append(where)
        if len(calls) == evaluations + 1:
            GBCM.fit(data, QUICK, model=model)
        return evaluate(objective, *where)

    monkeypatch.setattr(CachedObjective, "__call__", interrupted)
    with pytest.raises(CommitConflict, match="expected to write commit 1, but it is taken"):
        GBCM.fit(data, QUICK, model=model)
    store = open_store(model)
    assert GBCM.load(model).info()["rows"] == 240
    assert store.storage.names("holds") == store.storage.names("scratch") == []
