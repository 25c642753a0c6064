"""A model that names no place says what it said, and absorbs more; what it has absorbed cannot be read again."""

import numpy as np
import pytest

from bcmdist import GBCM
from bcmdist.api.carried import portable
from bcmdist.errors import DataNotFound
from bcmdist.storage.commits import open_store
from bcmdist.storage.entry import names_location
from problems import GIVEN, GIVEN_CLASSES, assert_same_committee


@pytest.mark.parametrize("kind", ["wave", "classes"])
def test_it_is_the_same_without_places(kind, request, tmp_path, rng):
    path, X, y = request.getfixturevalue(kind)
    gbcm = GBCM.fit(path, GIVEN if kind == "wave" else GIVEN_CLASSES).partial_fit(X + 1e-3, y)
    moved = GBCM(portable(gbcm.snapshot, open_store(tmp_path / "model")))
    assert_same_committee(moved.committee, gbcm.committee)
    keys = [entry.key for entry in moved.ledger]
    assert not any(map(names_location, keys))
    assert all(names_location(entry.key) for entry in gbcm.ledger)
    assert len(set(keys)) == len(gbcm.ledger)
    for name, values in gbcm.predict(X).items():
        np.testing.assert_array_equal(moved.predict(X)[name], values)
    for file in (tmp_path / "model").rglob("*"):
        assert file.is_dir() or str(tmp_path).encode() not in file.read_bytes()
    again = X + 1e-3 * rng.standard_normal(X.shape)
    assert moved.partial_fit(again, y).info()["rows"] == 720
    with pytest.raises(DataNotFound):
        moved.forget(keys[:1])
