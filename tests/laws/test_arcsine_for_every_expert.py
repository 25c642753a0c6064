"""The arcsine kernel, which is not stationary, with every expert, learned and given, and in spatial cells."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.mean import Mean
from oracles import full_gp

GIVEN = {
    "kernel.variance": 3.0,
    "kernel.bias": 1.5,
    "kernel.lengthscale": [0.6, 0.9],
    "likelihood.noise_variance": 0.01,
}
ASKED = Settings(kernel="arcsine", learn=False, set=GIVEN, query=80, rows_per_expert=60)


@pytest.mark.parametrize("expert", ["bcm", "fitc", "sor"])
def test_it_predicts_and_is_stored(wave, expert, rng, tmp_path):
    path, *_ = wave
    gbcm = GBCM.fit(path, replace(ASKED, expert=expert), model=tmp_path / "model")
    new = rng.uniform(-2, 2, (20, 2))
    truth = 3.0 + 2.0 * np.sin(2 * new[:, 0]) + new[:, 1]
    assert np.sqrt(np.mean((gbcm.predict(new)["mean"] - truth) ** 2)) < 0.3
    again = GBCM.load(tmp_path / "model")
    assert again.info()["hyperparameters"]["kernel.bias"] == [1.5]
    np.testing.assert_array_equal(again.predict(new)["mean"], gbcm.predict(new)["mean"])


def test_one_expert_is_the_exact_process(wave):
    """At its query points, whatever the kernel."""
    path, X, y = wave
    gbcm = GBCM.fit(path, replace(ASKED, mean="zero", rows_per_expert=240, query=20, query_method="random"))
    assert len(gbcm.ledger) == 1
    kernel = parse_kernel("arcsine", inputs=2).with_parameters(
        {name.removeprefix("kernel."): np.atleast_1d(value) for name, value in GIVEN.items() if "kernel" in name}
    )
    points, scaling = gbcm.model.query.points, gbcm.model.scaling
    targets = (y - y.mean()) / y.std()
    mean, covariance, _ = full_gp(kernel, Mean("zero").design, scaling.inputs(X), targets, 0.01, points)
    found = gbcm.predict(points * scaling.x_scale + scaling.x_mean)
    np.testing.assert_allclose(found["mean"], y.mean() + y.std() * mean, atol=1e-8)
    np.testing.assert_allclose(found["variance"], y.var() * np.diag(covariance), atol=1e-8)


@pytest.mark.parametrize("kernel", ["arcsine", "arcsine-iso"])
def test_it_is_learned(wave, kernel):
    path, *_ = wave
    info = GBCM.fit(path, Settings(kernel=kernel, query=40, rows_per_expert=120, effort="quick")).info()
    assert info["kernel"] == kernel
    assert len(info["hyperparameters"]["kernel.lengthscale"]) == (1 if kernel.endswith("iso") else 2)
    assert info["hyperparameters"]["likelihood.noise_variance"][0] < 0.05


def test_cells_are_cut_in_its_metric(wave):
    path, *_ = wave
    gbcm = GBCM.fit(path, replace(ASKED, partition="spatial"))
    assert gbcm.info()["method"] == "local"
    assert gbcm.score(path)["rmse"] < 0.2
