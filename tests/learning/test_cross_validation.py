"""Who decides by rows left out: under the shape of errors, and across gaps."""

import math

import numpy as np
import pytest

from bcmdist.data.dataset import open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.partition import partitions
from bcmdist.learning import cross_validation
from bcmdist.learning.blocks.blocks import CellBlocks
from bcmdist.learning.cross_validation import CrossValidation, ValidationData, densities_of_errors, select_model
from bcmdist.learning.decisions import A_ROW, EVIDENCE, ROWS_LEFT_OUT
from bcmdist.learning.gap_points import MOST_SHARE, gaps_in
from bcmdist.learning.left_out.blocks import CUTS
from bcmdist.learning.left_out.density import left_out_errors, normal_density
from bcmdist.learning.left_out.score import Margin, Score, margin
from bcmdist.learning.point import Point
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian, OneHot, Poisson
from bcmdist.model.scaling import Scaling, scaling_to_array
from bcmdist.runtime.interface import SerialRuntime
from bcmdist.storage.commits import BlobReference, open_store


def point(name, lengthscale, noise, objective, inputs=1):
    kernel = parse_kernel(name, inputs=inputs)
    kernel = kernel.with_parameters({"lengthscale": np.full(len(kernel.lengthscale), lengthscale)})
    return Point(name, kernel, Gaussian(noise), objective)


def as_found(point):
    """Nothing is climbed."""
    return point


def judged_by(densities, X, y):
    """Rows (n, D) left out one by one, by a density of their errors."""

    def judge(kernel, likelihood):
        return Score((densities(*left_out_errors(kernel.cross(X, X), likelihood, unweighted(y), len(y))),))

    return CrossValidation(judge, judge)


def test_a_few_rare_rows_do_not_choose_the_kernel(rng):
    """Small waves, and one row in fifty far off: one Gaussian for all errors takes the waves for noise."""
    X = np.sort(rng.uniform(-10, 10, (500, 1)), axis=0)
    y = np.sin(0.5 * X[:, 0]) + 0.08 * np.sin(10.0 * X[:, 0]) + 0.02 * rng.standard_normal(500)
    y[rng.permutation(500)[:10]] += 2.5 * rng.choice([-1.0, 1.0], 10)
    flat, wavy = point("matern52", 3.0, 0.09, 0.0), point("matern32", 0.5, 0.09, -1.0)
    taken = {}
    for name, densities in (("one", normal_density), ("shape", densities_of_errors)):
        won = select_model(judged_by(densities, X, y), flat, [wavy], as_found)
        taken[name] = won.point.name
        (kernel,) = (one for one in won.decisions if one.of == "kernel")
        assert kernel.taken == won.point.name
    assert taken == {"one": "matern52", "shape": "matern32"}
    assert kernel.criterion == ROWS_LEFT_OUT
    found = kernel.over["matern52"]
    assert found.nats > 5.0 * found.error > 0.0


@pytest.mark.parametrize(("gain", "taken", "judge"), [(0.004, "se", EVIDENCE), (0.006, "matern32", ROWS_LEFT_OUT)])
def test_the_evidence_decides_what_rows_left_out_do_not_tell_apart(gain, taken, judge):
    def rows(kernel, _):
        return Score((np.full(10, gain * (kernel.expression == "matern32")),))

    won = select_model(
        CrossValidation(rows, rows), point("se", 1.0, 0.1, 0.0), [point("matern32", 1.0, 0.1, -1.0)], as_found
    )
    (decision,) = won.decisions
    assert (decision.of, decision.taken, decision.criterion, decision.unit) == ("kernel", taken, judge, A_ROW)
    ((other, found),) = decision.over.items()
    assert {other, taken} == {"se", "matern32"}
    assert found == Margin(pytest.approx(gain if judge == ROWS_LEFT_OUT else -gain), pytest.approx(0.0, abs=1e-12))


def test_contenders_without_hope_are_not_climbed():
    values = {"se": 0.0, "matern12": -0.5, "matern32": -0.1, "matern52": -0.2}

    def rows(kernel, _):
        return Score((np.full(10, values[kernel.expression]),))

    climbed = []
    others = [point(name, 1.0, 0.1, -1.0) for name in ("matern12", "matern52", "matern32")]
    won = select_model(
        CrossValidation(rows, rows), point("se", 1.0, 0.1, 0.0), others, lambda p: climbed.append(p.name) or p
    )
    assert climbed == ["matern32", "matern52"]
    assert won.point.name == "se"
    assert {name: found.nats for name, found in won.decisions[0].over.items()} == pytest.approx(
        {"matern32": 0.1, "matern52": 0.2}
    )


def test_decisions_name_what_was_taken_of_each_kind(rng):
    """A kernel with one lengthscale wins: over other kernels, and over one for each input."""
    many, one = point("se", 1.0, 0.1, 0.0, inputs=3), Point("se", parse_kernel("se-iso", inputs=3), Gaussian(0.1), -1.0)
    other = point("matern52", 1.0, 0.1, -2.0, inputs=3)

    def rows(kernel, likelihood):
        bonus = 0.1 * (len(kernel.parameters["lengthscale"]) == 1) + 0.2 * (likelihood.noise_variance[0] > 0.3)
        return Score((bonus + 0.05 * np.sin(np.arange(50)),))

    won = select_model(CrossValidation(rows, rows), many, [one, other], as_found)
    found = {decision.of: decision for decision in won.decisions}
    assert found["kernel"].taken == won.point.name == "se"
    assert found["kernel"].over["matern52"].nats == pytest.approx(0.1)
    assert found["lengthscales"].taken == "one for all inputs"
    assert found["lengthscales"].over["one for each input"].nats == pytest.approx(0.1)
    assert found["variances"].taken == "noise x 4, kernel x 1"
    assert found["variances"].over["as learned"].nats == pytest.approx(0.2)
    assert won.chosen.likelihood.noise_variance[0] == pytest.approx(0.4)


def test_the_error_of_a_margin_is_that_of_differences(rng):
    common, gap = rng.standard_normal(400), rng.standard_normal(400)
    blocks = rng.standard_normal(9)
    one, other = Score((common + gap, blocks), (0.75, 0.25)), Score((common, np.zeros(9)), (0.75, 0.25))
    found = margin(one, other)
    assert found.nats == pytest.approx(0.75 * gap.mean() + 0.25 * blocks.mean())
    exact = math.hypot(0.75 * gap.std(ddof=1) / 20.0, 0.25 * blocks.std(ddof=1) / 3.0)
    assert found.error == pytest.approx(exact)
    failed = Score((np.full(400, -math.inf), blocks), (0.75, 0.25))
    assert margin(one, failed).to_json() == {"nats": None, "error": None}


def test_errors_that_are_as_predicted_have_about_a_normal_shape(rng):
    """A fitted shape costs about (number of free weights) / (2n) nats per row where the normal one is right."""
    error, variance = rng.standard_normal(2000), rng.uniform(0.5, 2.0, 2000)
    error *= np.sqrt(variance)
    gain = densities_of_errors(error, variance) - normal_density(error, variance)
    assert abs(gain.mean()) < 0.003
    assert np.quantile(np.abs(gain), 0.9) < 0.05
    assert np.all(densities_of_errors(np.where(error > 2.0, np.inf, error), variance) == -np.inf)


@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_rows_that_fill_their_domain_leave_no_gaps(rng, inputs):
    assert gaps_in(rng.uniform(-1, 1, (2000, inputs)), 2000, 5, 100) is None
    grid = np.stack(np.meshgrid(*[np.arange(round(2000 ** (1 / inputs)))] * inputs), axis=-1).reshape(-1, inputs)
    assert gaps_in(grid.astype(float), len(grid), 5, 100) is None


@pytest.mark.parametrize(("inputs", "radius"), [(1, 0.2), (2, 0.5), (3, 0.8)])
def test_a_hole_is_seen_with_its_size(rng, inputs, radius):
    """A ball in a box of side 2, of whose rows a tenth is seen; a gap in the middle of so many leaves rows around."""
    X = rng.uniform(-1, 1, (6000, inputs))
    X = X[np.linalg.norm(X, axis=1) > radius]
    found = gaps_in(X, 10 * len(X), 7, 100)
    volume = 1.0 - len(X) / 6000
    assert 0.3 * volume < found.share <= min(1.1 * volume, MOST_SHARE)
    assert found.radius == pytest.approx(radius, rel=0.15)
    near = [np.sum(np.linalg.norm(X - x, axis=1) < 2.0 * found.radius) for x in X[:500]]
    np.testing.assert_allclose(found.shares, np.full(7, 100 / (10 * np.median(near))), rtol=0.2)


def test_many_inputs_have_no_gaps_to_look_for(rng):
    X = rng.uniform(-1, 1, (500, 4))
    assert gaps_in(X[np.abs(X[:, 0]) > 0.5], 500, 5, 100) is None
    assert gaps_in(np.ones((5, 2)), 5, 5, 100) is None


@pytest.mark.slow
def test_gaps_choose_the_kernel_that_reaches_across_them(make_data, tmp_path, rng, monkeypatch):
    """A wave, a little of a rough process, and noise: rows left out alone take the rough kernel, lost in gaps.

    Blocks of other sizes, left out of samples, suffice to tell.
    """
    X = np.sort(rng.uniform(-8, 8, (900, 1)), axis=0)
    rough = parse_kernel("matern12", inputs=1).with_parameters({"lengthscale": np.array([0.1])})
    noise = np.linalg.cholesky(rough.cross(X, X) + 1e-9 * np.eye(900)) @ rng.standard_normal(900)
    y = np.sin(1.5 * X[:, 0]) + 0.052 * noise + 0.05 * rng.standard_normal(900)
    seen = np.abs(np.abs(X[:, 0]) - 3.0) > 0.9
    runtime, store = SerialRuntime(), open_store(str(tmp_path / "model"))
    data = open_data(make_data("gaps.zarr", X=X[seen], y=y[seen], rows_per_chunk=100))
    scaling = store.put_arrays({"scaling": scaling_to_array(Scaling(np.zeros(1), np.ones(1), 0.0, 1.0))})["scaling"]
    reference, parts = BlobReference(store.storage.url, scaling), partitions(data, 100)
    common = {"reference": reference, "size": 100, "per_density": 1, "runtime": runtime, "store": store, "seed": 0}
    smooth, kinked = point("se", 1.0, 0.0055, -25.0), point("matern12", 3.0, 0.0025, 0.0)
    taken = {}
    for name in ("rows", "blocks", "gaps"):
        near = CellBlocks(data, parts, X[seen], url=str(tmp_path / name), **common)
        if name != "gaps":
            monkeypatch.setattr(cross_validation, "gaps_in", lambda *_: None)
        if name == "rows":
            monkeypatch.setattr(cross_validation, "SAMPLES", 0)
            monkeypatch.setattr(cross_validation, "LEAST_ROWS", 10**9)
        folds = ValidationData(near, reference, runtime, None, Gaussian()).folds(smooth.kernel)
        taken[name] = select_model(folds.under("zero"), kinked, [smooth], as_found)
        monkeypatch.undo()
    assert {name: won.point.name for name, won in taken.items()} == {
        "rows": "matern12",
        "blocks": "se",
        "gaps": "se",
    }
    off = {}
    for name, won in taken.items():
        kernel, noise = won.chosen.kernel, won.chosen.likelihood.noise_variance
        S = kernel.cross(X[seen], X[seen]) + noise * np.eye(seen.sum())
        off[name] = np.std(y[~seen] - kernel.cross(X[~seen], X[seen]) @ np.linalg.solve(S, y[seen]))
    assert off["gaps"] < 0.75 * off["rows"]


@pytest.mark.parametrize("likelihood", [Gaussian(0.1), Poisson(), OneHot(2, 0.3)], ids=lambda one: one.name)
def test_variances_and_models_are_scored_by_rows_and_by_blocks_of_each_size(
    likelihood, make_data, tmp_path, rng, monkeypatch
):
    X = rng.uniform(0, 1, (120, 2))
    runtime, store = SerialRuntime(), open_store(str(tmp_path / "model"))
    data = open_data(make_data("rows.zarr", X=X, y=rng.integers(0, 2, 120) * 1.0, rows_per_chunk=120))
    scaling = store.put_arrays({"scaling": scaling_to_array(Scaling(np.zeros(2), np.ones(2), 0.0, 1.0))})["scaling"]
    reference = BlobReference(store.storage.url, scaling)
    common = {"reference": reference, "size": 100, "per_density": 1, "runtime": runtime, "store": store, "seed": 0}
    near = CellBlocks(data, partitions(data, 120), X, url=str(tmp_path / "near"), **common)
    classes = (0.0, 1.0) if likelihood.on_labels else None
    kernel = parse_kernel("matern32", inputs=2)
    judges = ValidationData(near, reference, runtime, classes, likelihood).folds(kernel).under("zero")
    variances = judges.noise_score(kernel, likelihood)
    with monkeypatch.context() as patched:  # a candidate is computed once, however often it is scored
        patched.delattr(SerialRuntime, "sum")
        models = judges.model_score(kernel, likelihood)
    assert [len(group) for group in variances.groups] == [len(group) for group in models.groups] == [120, *CUTS]
    assert variances.shares == models.shares
    for one, other in zip(variances.groups[1:], models.groups[1:], strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.isfinite(one).all()
