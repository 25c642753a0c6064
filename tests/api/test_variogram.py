"""The variogram: pairs as a double loop finds them, and a kernel that the data were drawn from lies on them."""

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.api.pictures.pictures import subject_of
from bcmdist.api.pictures.variogram import binned, directions, semivariances
from bcmdist.errors import InvalidOption

pytest.importorskip("matplotlib", reason="pictures: pip install 'bcmdist[plot]'")
QUICK = {
    "learn": False,
    "kernel": "matern32",
    "query": 30,
    "partition": "chunks",
    "rows_per_expert": 60,
    "noise": "constant",
}


def fitted(make_data, X, y, **settings):
    path = make_data(X=X, y=y)
    gbcm = GBCM.fit(path, Settings(**QUICK | settings))
    return gbcm, subject_of(gbcm, SerialRuntime(), data=path)


@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_pairs_are_those_of_a_double_loop(rng, make_data, mean):
    X = rng.uniform(-2, 2, (40, 2)) * [1.0, 10.0]
    y = 5.0 * np.sin(X[:, 0]) + 0.3 * X[:, 1] + rng.standard_normal(40)
    gbcm, subject = fitted(make_data, X, y, mean=mean)
    model, rows = gbcm.snapshot.model, subject.judged
    noise = float(model.likelihood.noise_variance[0])
    found, expected = semivariances(model, rows, np.full(40, noise * model.scaling.y_scale**2))
    Z, scale, design = model.scaling.inputs(rows.X), model.scaling.y_scale, np.ones((40, 1))
    if mean == "linear":
        design = np.column_stack([design, rows.X])
    rest = rows.y - design @ np.linalg.lstsq(design, rows.y, rcond=None)[0]
    K, pair = model.shared.kernel.cross(Z, Z), 0
    panels = list(directions(model, rows.X).values())
    spread = rows.X.std(axis=0)
    for i in range(40):
        for j in range(i + 1, 40):
            assert found[pair] == pytest.approx(0.5 * (rest[i] - rest[j]) ** 2, rel=1e-6, abs=1e-9 * scale**2)
            gamma = scale**2 * (0.5 * (K[i, i] + K[j, j]) - K[i, j] + noise)
            assert expected[pair] == pytest.approx(gamma, rel=1e-8)
            gap = np.abs(rows.X[i] - rows.X[j])
            angle = np.degrees(np.arctan2(gap[1] / spread[1], gap[0] / spread[0]))
            for panel, along in zip(panels, (angle <= 22.5, angle >= 67.5), strict=True):
                assert np.isfinite(panel[pair]) == along
            pair += 1


def test_bins_are_means_of_their_pairs(rng):
    distance, value = rng.uniform(0, 10, 4000), rng.uniform(0, 1, 4000)
    distance[:100] = np.nan
    distance[100:200] = 0.0  # duplicates have a bin of their own
    centre, (found,), pairs = binned(distance, value)
    assert (centre[0], pairs[0], found[0]) == (0.0, 100, pytest.approx(value[100:200].mean()))
    top = 0.5 * np.nanmax(distance)
    inside = (distance > 0) & (distance <= top)
    assert pairs[1:].sum() == inside.sum()
    assert pairs @ found == pytest.approx(value[100:200].sum() + value[inside].sum())
    assert np.all(np.diff(centre) > 0)


def test_a_kernel_that_data_were_drawn_from_lies_on_them(rng, make_data):
    """Twelve fields over each other: the mean semivariance of near pairs is that of kernel and noise, to 15 %."""
    X = np.random.default_rng(3).uniform(0, 20, (300, 1))
    gbcm, subject = fitted(make_data, X, np.sin(X[:, 0]))
    model, rows = gbcm.snapshot.model, subject.judged
    Z = model.scaling.inputs(rows.X)
    noise, scale = float(model.likelihood.noise_variance[0]), model.scaling.y_scale
    lower = np.linalg.cholesky(model.shared.kernel.cross(Z, Z) + noise * np.eye(300))
    (distance,) = directions(model, rows.X).values()
    first, second = np.triu_indices(300, 1)
    fields = scale * lower @ rng.standard_normal((300, 200))
    observed = 0.5 * np.mean((fields[first] - fields[second]) ** 2, axis=1)
    _, expected = semivariances(model, rows, np.full(300, noise * scale**2))
    _, (mean, kernel), _ = binned(distance, observed, expected)
    np.testing.assert_allclose(mean, kernel, rtol=0.15)


def test_many_inputs_share_a_panel_and_others_are_refused(rng, make_data, tmp_path):
    X = rng.uniform(-1, 1, (120, 5))
    gbcm, subject = fitted(make_data, X, X[:, 0] + 0.1 * rng.standard_normal(120))
    (panel,) = directions(gbcm.snapshot.model, subject.judged.X).items()
    assert panel[0] == "distance, in standard deviations of inputs"
    np.testing.assert_allclose(
        panel[1][0], np.linalg.norm(np.diff(gbcm.model.scaling.inputs(subject.judged.X[:2]), axis=0))
    )
    path = make_data(X=X, y=rng.poisson(3.0, 120).astype(float), name="counts.zarr")
    counts = GBCM.fit(path, Settings(**QUICK | {"task": "counts", "likelihood": "poisson"}))
    with pytest.raises(InvalidOption, match="--what variogram: expected one output with normal errors, got poisson"):
        counts.plot(tmp_path / "a.png", what="variogram", data=path)
    few = make_data(X=X[:5], y=X[:5, 0], name="few.zarr")
    with pytest.raises(InvalidOption, match="--what variogram: expected 30 pairs of rows at similar distances"):
        gbcm.plot(tmp_path / "a.png", what="variogram", data=few)
