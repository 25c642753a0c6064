"""Mixtures at uncertain inputs: moments of mixtures of members' moments, limits, data sets, commands."""

import json

import numpy as np
import pytest
import zarr
from averages import VARIANCE, averaged
from click.testing import CliRunner
from scipy import stats

from bcmdist import GBCM, HMC, Settings, sample_posterior
from bcmdist.api.mixture import Mixture
from bcmdist.app.cli.main import cli
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidData, InvalidOption

QUICK = {"learn": False, "kernel": "se", "query": 25, "rows_per_expert": 60}
WAYS = ("exact", "taylor", "montecarlo")


@pytest.fixture
def rows(rng):
    """Inputs (120, 2) and a function of them, (120,)."""
    X = rng.uniform(-2, 2, (120, 2))
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]


@pytest.fixture
def path(rows, make_data):
    X, f = rows
    return make_data(X=X, y=f)


def two_of(path, **settings):
    """Committees that differ in their lengthscales and variances."""
    given = [{"kernel.lengthscale": [0.5, 2.0]}, {"kernel.lengthscale": [2.0, 8.0], "kernel.variance": 3.0}]
    return [GBCM.fit(path, Settings(partition="chunks", **QUICK | settings, set=one)) for one in given]


def uncertain(path, X, variance=None):
    """A data set with the variances beside X."""
    variance = np.tile(VARIANCE, (len(X), 1)) if variance is None else variance
    zarr.open_group(path, mode="r+").create_array("X_variance", data=variance, chunks=(50, *variance.shape[1:]))


@pytest.mark.parametrize("names", [("mean", "variance"), ("observation_mean", "observation_variance")])
def test_exact_moments_of_a_mixture_are_those_of_quadrature(path, rows, names):
    """Errors of inputs are the same for all members: averaging over them and over members may change places."""
    mixture, X = Mixture(two_of(path)), rows[0][:5]
    said = mixture.predict(X, X_variance=np.tile(VARIANCE, (5, 1)))
    expected = averaged(mixture.predict, X, names)
    # Rounding times the condition number of the query covariance, some 1e4 to 1e6 where lengthscales are 8.
    np.testing.assert_allclose([said[name] for name in names], expected, rtol=1e-7)


@pytest.mark.slow
def test_exact_moments_of_a_mixture_are_those_of_draws(path, rows, rng):
    """Five standard errors of 200000 draws, which are about 1e-3 of a standard deviation."""
    mixture, u = Mixture(two_of(path)), rows[0][:1]
    said = mixture.predict(u, X_variance=VARIANCE[None])
    drawn = mixture.predict(u + np.sqrt(VARIANCE) * rng.standard_normal((200_000, 2)))
    square = (drawn["mean"] - drawn["mean"].mean()) ** 2 + drawn["variance"]
    assert abs(said["mean"][0] - drawn["mean"].mean()) < 5 * drawn["mean"].std() / np.sqrt(200_000)
    assert abs(said["variance"][0] - square.mean()) < 5 * square.std() / np.sqrt(200_000)


@pytest.mark.parametrize("way", WAYS)
def test_as_variances_vanish_mixtures_are_the_plain_ones(path, rows, way):
    mixture, X = Mixture(two_of(path)), rows[0][:9]
    plain = mixture.predict(X, quantiles=(0.3,))
    for variance, rtol in ((0.0, 1e-7), (1e-10, 1e-6)):  # second differences by steps of a hundredth lose four digits
        said = mixture.predict(X, quantiles=(0.3,), X_variance=np.full(X.shape, variance), inputs=way)
        assert set(said) == set(plain)
        for name, values in plain.items():
            np.testing.assert_allclose(said[name], values, rtol=rtol, atol=rtol, err_msg=name)


@pytest.mark.parametrize("way", WAYS)
def test_a_mixture_is_of_what_members_say(path, rows, way):
    """Quantiles too are those of the members' normal distributions, side by side."""
    members, X = two_of(path), rows[0][:9]
    how = {"X_variance": np.tile(VARIANCE, (9, 1)), "inputs": way}
    said, each = Mixture(members).predict(X, **how), [member.predict(X, **how) for member in members]
    means = np.array([one["observation_mean"] for one in each])
    np.testing.assert_allclose(said["observation_mean"], means.mean(axis=0), rtol=1e-12)
    below = [
        stats.norm.cdf(said["upper95"], one["observation_mean"], np.sqrt(one["observation_variance"])) for one in each
    ]
    np.testing.assert_allclose(np.mean(below, axis=0), 0.975, rtol=1e-9)


def test_members_average_in_the_same_way(path, rows):
    """Of kernels some of which know no averages in closed form, all draw."""
    X = rows[0][:5]
    members = [
        GBCM.fit(path, Settings(partition="chunks", **QUICK | {"kernel": kernel})) for kernel in ("se", "matern52")
    ]
    how = {"X_variance": np.tile(VARIANCE, (5, 1))}
    said, drawn = Mixture(members).predict(X, **how), Mixture(members).predict(X, **how, inputs="montecarlo")
    np.testing.assert_array_equal(said["variance"], drawn["variance"])
    with pytest.raises(InvalidOption, match="expected kernels se and linear, sums of these"):
        Mixture(members).predict(X, **how, inputs="exact")


def test_probabilities_of_a_mixture_are_averages(rows, make_data):
    X, f = rows
    members = two_of(make_data(X=X, y=(f > 0).astype(np.uint8)), task="classification")
    how = {"X_variance": np.tile(VARIANCE, (120, 1))}
    each = [member.predict(X, **how)["probability"] for member in members]
    np.testing.assert_allclose(Mixture(members).predict(X, **how)["probability"], np.mean(each, axis=0), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_data_set_is_predicted_and_scored_as_its_rows_are(path, rows, tmp_path, cluster, way):
    mixture, (X, f) = Mixture(two_of(path)), rows
    uncertain(path, X)
    expected = mixture.predict(X, X_variance=np.tile(VARIANCE, (120, 1)), inputs=way)
    for name, runtime in (("serial", None), ("dask", cluster)):
        out = str(tmp_path / name)
        mixture.predict_zarr(path, out, inputs=way, runtime=runtime)
        said = zarr.open_group(out)
        # blocks of other sizes round otherwise, and second differences by steps of a hundredth lose four digits
        np.testing.assert_allclose(said["observation_variance"][...], expected["observation_variance"], rtol=1e-8)
        np.testing.assert_allclose(said["mean"][...], expected["mean"], rtol=1e-10)
    figures = mixture.score(path, inputs=way)
    error = np.sqrt(np.mean((expected["observation_mean"] - f) ** 2))
    assert figures["rmse"] == pytest.approx(error, rel=1e-9)
    again = mixture.score(path, inputs=way, runtime=cluster)
    assert {name: again[name] for name in ("rmse", "mnlp", "crps")} == pytest.approx(
        {name: figures[name] for name in ("rmse", "mnlp", "crps")}, rel=1e-8
    )


@pytest.mark.slow
def test_the_commands_on_a_mixture(path, rows, tmp_path):
    X, _ = rows
    model, out, new = (str(tmp_path / name) for name in ("model", "out.zarr", "new.zarr"))
    settings = Settings(partition="chunks", kernel="se", mean="zero", query=20, rows_per_expert=60)
    mixture = sample_posterior(path, settings, model=model, samples=2, chains=1, hmc=HMC(iterations=6, burn_in=2))
    write_dataset(new, {"X": X}, rows_per_chunk=50)
    run = CliRunner().invoke
    refused = run(cli, ["predict", model, new, "--out", out, "--inputs", "taylor", "--serial"])
    assert refused.exit_code == 1
    assert "inputs: expected an array X_variance beside X" in refused.stderr
    uncertain(new, X)
    done = run(cli, ["predict", model, new, "--out", out, "--inputs", "taylor", "--serial", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 120
    expected = mixture.predict(X, X_variance=np.tile(VARIANCE, (120, 1)), inputs="taylor")
    np.testing.assert_allclose(zarr.open_group(out)["variance"][...], expected["variance"], rtol=1e-8)


def test_what_is_refused_before_any_work(path, rows, tmp_path):
    mixture, (X, _) = Mixture(two_of(path)), rows
    with pytest.raises(InvalidOption, match="expected X_variance with 'exact'"):
        mixture.predict(X, inputs="exact")
    with pytest.raises(InvalidData, match=r"expected shape \(120, 2\)"):
        mixture.predict(X, X_variance=np.ones((3, 2)))
    with pytest.raises(InvalidOption, match="expected exact, taylor, montecarlo, got 'other'"):
        mixture.predict(X, X_variance=np.ones((120, 2)), inputs="other")
    with pytest.raises(InvalidOption, match="inputs: expected an array X_variance beside X"):
        mixture.predict_zarr(path, str(tmp_path / "out"), inputs="exact")
    uncertain(path, X, -np.ones((120, 2)))
    with pytest.raises(InvalidData, match="at row 0"):
        mixture.predict_zarr(path, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
