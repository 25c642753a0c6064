"""The expert `fourier` with the rows around new points: waves for what is far, local experts for what is near."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import zarr
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.data.writing import append_rows
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import RESIDUALS
from bcmdist.methods.fourier.belief import PROBES, iterative_belief
from bcmdist.prediction.local.neighbours import Neighbours, load_neighbours
from problems import assert_same_committee

pytest.importorskip("finufft", reason="expert fourier: pip install 'bcmdist[fourier]'")

NOISE = 0.05
GIVEN = {"kernel.variance": 1.5, "kernel.lengthscale": 0.7, "likelihood.noise_variance": NOISE}
CELLS = Settings(
    kernel="matern32",
    learn=False,
    set=GIVEN,
    expert="fourier",
    partition="spatial",
    rows_per_expert=120,
    tolerance=0.1,
    mean="constant",
    noise="constant",
)


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have: where rounding differs, what is learned does too, within what learning leaves open."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A committee of some cells, the path of its data, X (900, 2), y (900,), and new points (60, 2)."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, (900, 2))
    y = 3.0 + np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1]) + np.sqrt(NOISE) * rng.standard_normal(900)
    place = tmp_path_factory.mktemp("cells")
    append_rows(f"{place}/rows.zarr", X, y, rows_per_chunk=300)
    gbcm = GBCM.fit(f"{place}/rows.zarr", CELLS, model=f"{place}/model")
    return gbcm, f"{place}/rows.zarr", X, y, rng.uniform(-1.9, 1.9, (60, 2))


def rows_of(entry):
    """Numbers of the rows of a ledger entry, in the order of cells."""
    start, stop = entry.key[entry.key.rindex("[") + 1 : -1].split(":")
    return range(int(start), int(stop))


def exact(gbcm, X, y, new):
    """Mean and variance of f by the Gaussian process itself, in original units."""
    model = gbcm.model
    k, A, B = model.shared.kernel, model.scaling.inputs(X), model.scaling.inputs(new)
    K, Ks = k.cross(A, A) + 25.0 + NOISE * np.eye(len(A)), k.cross(B, A) + 25.0
    variance = k.diagonal(B) + 25.0 - np.einsum("ij,ji->i", Ks, np.linalg.solve(K, Ks.T))
    return y.mean() + y.std() * (Ks @ np.linalg.solve(K, (y - y.mean()) / y.std())), y.var() * variance


@pytest.mark.slow
def test_few_waves_and_the_rows_around_are_nearly_the_gaussian_process(fitted):
    """Which a committee of so few waves is not: errors of means in standard deviations, and of variances.

    Not more nearly, for the committee takes what waves leave for noise of each row on its own: .24 here, .13 at a
    tolerance of .01.
    """
    gbcm, _, X, y, new = fitted
    mean, variance = exact(gbcm, X, y, new)
    near, far = gbcm.predict(new), gbcm.predict(new, method="committee")
    assert gbcm.info()["method"] == "local"
    assert gbcm.model.shared.size < 200
    assert np.sqrt(np.mean((near["mean"] - mean) ** 2 / variance)) < 0.3
    assert np.sqrt(np.mean((far["mean"] - mean) ** 2 / variance)) > 1.0
    np.testing.assert_allclose(near["variance"], variance, rtol=0.2)
    assert np.median(far["variance"] / variance) > 2.0


@pytest.mark.slow
def test_probes_say_nearly_as_much(fitted):
    """They tell of what waves leave uncertain once the rows around are known, which is little of the variance."""
    gbcm, _, _, _, new = fitted
    near, total, shared = load_neighbours(gbcm.snapshot.reference), gbcm.committee.total, gbcm.model.shared
    belief = iterative_belief(total.eta, shared.operator(total.precision))
    other = Neighbours(near.model, belief, near.rows, commit=None)
    X = gbcm.model.scaling.inputs(new)
    (mean, variance), (m, v) = near.latent(X), other.latent(X)
    np.testing.assert_allclose(m, mean, atol=10.0 * belief.residual)  # in standard deviations, which are less than 1
    assert np.abs(v / variance - 1.0).max() <= 4.0 * np.sqrt(2.0 / PROBES)


def test_a_row_is_predicted_alike_in_any_company(fitted):
    gbcm, _, _, _, new = fitted
    together = gbcm.predict(new)
    for name, value in gbcm.predict(new[17:19]).items():
        np.testing.assert_allclose(value, together[name][17:19], rtol=1e-9)


@pytest.mark.slow
def test_a_cluster_says_the_same(fitted, cluster, tmp_path):
    gbcm, path, _, _, new = fitted
    other = GBCM.fit(path, CELLS, model=tmp_path / "dask", runtime=cluster)
    assert_same_committee(other.committee, gbcm.committee, 1e-9)
    np.testing.assert_allclose(other.predict(new)["mean"], gbcm.predict(new)["mean"], atol=1e-8)
    assert other.score(path, runtime=cluster)["rmse"] == pytest.approx(gbcm.score(path)["rmse"], abs=1e-8)
    assert other.predict_zarr(path, tmp_path / "out.zarr", runtime=cluster) == 900
    np.testing.assert_allclose(
        zarr.open_group(tmp_path / "out.zarr")["variance"][:9], gbcm.predict(fitted[2][:9])["variance"], rtol=1e-7
    )


@pytest.mark.slow
def test_forgotten_rows_are_no_neighbours(fitted, tmp_path):
    """What is left is the committee, and the rows around, of the others alone."""
    gbcm, path, _, y, new = fitted
    own = GBCM.fit(path, CELLS, model=tmp_path / "own")
    after = own.forget([entry.key for entry in own.ledger[:2]])
    assert after.committee.total.rows < 900
    again = after.forget([entry.key for entry in after.ledger])
    assert again.committee.total.rows == 0
    found = again.predict(new)
    np.testing.assert_allclose(found["mean"], y.mean(), atol=1e-8)
    numbers = np.array(list(itertools.product(range(-9, 10), repeat=2)))
    shared = again.model.shared  # of all frequencies on the grid: the kernel and its aliases
    prior = shared.kernel.cross(np.zeros((1, 2)), numbers / shared.step).sum()
    np.testing.assert_allclose(found["variance"], y.var() * (prior + 25.0), rtol=1e-9)
    gone = [row for entry in own.ledger[:2] for row in rows_of(entry)]
    assert len(gone) == 900 - after.committee.total.rows
    there = zarr.open_group(f"{own.url}/cells.zarr")["X"][:][gone]
    found, before = after.predict(there), gbcm.predict(there)
    assert np.mean(found["variance"] / before["variance"]) > 1.2  # who lived there is gone


@pytest.mark.slow
def test_hyperparameters_are_learned_in_neighbourhoods(fitted):
    """As for the expert bcm, from the same rows."""
    learned = replace(CELLS, kernel="matern52", learn=True, set={}, effort="quick")
    one = GBCM.prepare(fitted[1], learned)
    other = GBCM.prepare(fitted[1], replace(learned, expert="bcm", options={}, query=30))
    assert one.info()["hyperparameters"] == other.info()["hyperparameters"]


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_other_likelihoods(likelihood, make_data, rng, tmp_path):
    """Local experts find the mode of the rows around: near what the committee says where waves leave little."""
    X = rng.uniform(-2, 2, (500, 2))
    f = 1.0 + np.sin(2 * X[:, 0])
    y = rng.poisson(np.exp(f)) if likelihood == "poisson" else rng.random(500) < 1 / (1 + np.exp(2 - 2 * f))
    own = {name: value for name, value in GIVEN.items() if name.startswith("kernel")}
    how = replace(CELLS, likelihood=likelihood, set=own, noise="auto", passes="auto", kernel="se")
    few, many = (
        GBCM.fit(make_data(f"{t}.zarr", X=X, y=y.astype(float)), replace(how, tolerance=t), model=tmp_path / str(t))
        for t in (0.5, 1e-4)
    )
    new = rng.uniform(-1.9, 1.9, (30, 2))
    one, other = few.predict(new), many.predict(new, method="committee")
    sd = np.sqrt(other["variance"])
    assert np.abs((one["mean"] - other["mean"]) / sd).max() < 0.5
    assert few.model.shared.size < 0.2 * many.model.shared.size


def test_partitions_of_cells_are_smaller():
    assert Settings(expert="fourier", partition="spatial").rows_per_expert == 16_000


def test_memory_is_projected():
    """More for more rows around, and less than a design of all the waves of these would take."""
    need = RESIDUALS["waves"].local_bytes
    small, large = (need(around, 16_000, 15_000, kernels=1, classes=1) for around in (400, 800))
    assert small < large < 8 * 800 * 8 * 15_000 + need(400, 16_000, 15_000, kernels=1, classes=1)


def test_a_model_without_cells_has_no_rows_around(fitted):
    plain = GBCM.fit(fitted[1], replace(CELLS, partition="chunks", rows_per_expert=300))
    with pytest.raises(InvalidOption, match="expected a model fitted with --partition spatial for local prediction"):
        plain.predict(fitted[4], method="local")
