"""A committee's life with experts whose shared variables were trained: what messages about them say adds up."""

import pytest

from bcmdist import GBCM, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.learning.experts import EXPERTS
from problems import assert_same_committee, only

GIVEN = {
    "rows_per_expert": 50,
    "effort": "quick",
    "learn": False,
    "set": {"kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.05},
}
UNTRAINED = [
    Settings(expert=name, **options, **GIVEN)
    for name, options in {"mnnmix": {"units": 12, "networks": 3}, "dgp": {"query": 12}}.items()
    if name in EXPERTS
]


@pytest.fixture(params=UNTRAINED, ids=lambda settings: settings.expert)
def settings(request):
    return request.param


@pytest.fixture
def prepared(wave, settings, tmp_path):
    return GBCM.prepare(wave[0], settings, model=tmp_path / "prepared"), wave[0]


@pytest.fixture
def fitted(wave, settings, tmp_path):
    return GBCM.fit(wave[0], settings, model=tmp_path / "fitted"), wave[0]


def test_hearing_a_source_is_fitting(prepared, fitted):
    gbcm, path = prepared
    absorbed, report = gbcm.ingest(gbcm.source(path))
    assert report.partitions == 5
    assert_same_committee(absorbed.committee, fitted[0].committee)


def test_forgetting_is_never_having_heard(prepared, fitted, tmp_path):
    gbcm, path = fitted
    gone = [entry.key for entry in gbcm.ledger if "[50:" in entry.key or "[200:" in entry.key]
    after = gbcm.forget(gone)
    assert_same_committee(after.committee, only(*prepared, [0, 2, 3], tmp_path / "rest").committee)
    back = after.absorb(partitions(open_data(path), 50))
    assert_same_committee(back.committee, gbcm.committee)
    assert_same_committee(back.reweight({gone[0]: 2.0}).reweight({gone[0]: 1.0}).committee, gbcm.committee)


def test_merging_is_hearing_both(prepared, fitted, tmp_path):
    one, other = only(*prepared, [0, 3], tmp_path / "one"), only(*prepared, [1, 2, 4], tmp_path / "other")
    assert_same_committee(one.merge(other, tmp_path / "both").committee, fitted[0].committee)
