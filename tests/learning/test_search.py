import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from bcmdist.data.observations import unweighted
from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.experts.evidence import local_evidence
from bcmdist.learning import search as learning
from bcmdist.learning.cross_validation import CrossValidation
from bcmdist.learning.left_out.density import left_out_errors, normal_density
from bcmdist.learning.left_out.score import Score
from bcmdist.learning.mean_choice import mean_by_rows
from bcmdist.learning.point import Point, bounds_of, expanded, moved, parameters_of, prior_center, theta_of
from bcmdist.learning.search import AUTO_KERNELS, EFFORTS, learn
from bcmdist.learning.structure import TWO_SCALES
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Bernoulli, Gaussian, NegativeBinomial, make_likelihood
from bcmdist.model.mean import Mean


def objective_of(X, y, mean="constant"):
    obs = unweighted(y)

    def objective(kernel, likelihood):
        try:
            return local_evidence(kernel, Mean(mean), likelihood, X, obs)
        except (NotPositiveDefinite, LaplaceNotConverged):
            return -math.inf, np.zeros(len(kernel.theta) + len(likelihood.parameters))

    return objective


def always(objective):
    """The same rows whatever the metric."""
    return lambda kernel: objective


def judged_by(judge):
    """One judge who settles variances and decides, of a number or of one a row."""
    return seated(judge, judge)


def seated(noise_score, model_score):
    """Judges of numbers, or of one a row."""

    def scored(judge):
        return lambda *at: Score((np.atleast_1d(judge(*at)),))

    return always(CrossValidation(scored(noise_score), scored(model_score)))


def sample(rng, kernel, rows, noise):
    """Data from the prior itself."""
    X = rng.uniform(-2, 2, (rows, 2))
    K = kernel.cross(X, X) + noise * np.eye(rows)
    return X, np.linalg.cholesky(K) @ rng.standard_normal(rows)


def test_hyperparameters_of_the_prior_are_found(rng):
    truth = parse_kernel("se", inputs=2).with_parameters(
        {"variance": np.array([1.0]), "lengthscale": np.array([0.5, 2.0])}
    )
    X, y = sample(rng, truth, 300, 0.05)
    found = learn(always(objective_of(X, y)), "se", Gaussian(0.5), inputs=2, effort=EFFORTS["thorough"])
    np.testing.assert_allclose(found.kernel.lengthscale, [0.5, 2.0], rtol=0.4)  # a posterior deviation or two
    np.testing.assert_allclose(found.likelihood.noise_variance, 0.05, rtol=0.3)
    assert found.at_bounds == []


def test_auto_takes_the_rougher_kernel_for_rough_data(rng):
    truth = parse_kernel("matern12-iso", inputs=2)
    X, y = sample(rng, truth, 250, 0.001)
    found = learn(always(objective_of(X, y)), "auto", Gaussian(0.5), inputs=2, effort=EFFORTS["normal"])
    assert found.kernel_name == "matern12"
    assert found.tried["matern12"] > found.tried["se"]


def test_a_kernel_that_may_not_be_taken_is_tried_only(rng):
    """Where none may, the best one is taken all the same: whoever shares variables then makes do."""
    X, y = sample(rng, parse_kernel("matern12-iso", inputs=2), 120, 0.001)
    how = {"inputs": 2, "effort": EFFORTS["quick"]}
    for may, taken in (({"se", "matern52"}, {"se", "matern52"}), (set(), {"matern12"})):
        found = learn(
            always(objective_of(X, y)),
            "auto",
            Gaussian(0.5),
            **how,
            representable=lambda k, may=may: k.expression in may,
        )
        assert max(found.tried, key=lambda name: found.tried[name]) == "matern12"
        assert found.kernel_name in taken


def test_many_inputs_that_do_not_matter(rng):
    """A single start with 20 lengthscales is lost here; the isotropic stage comes first."""
    X = rng.standard_normal((300, 20))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(300)
    found = learn(
        always(objective_of(X, (y - y.mean()) / y.std())), "se", Gaussian(0.1), inputs=20, effort=EFFORTS["normal"]
    )
    lengthscale = found.kernel.lengthscale
    assert lengthscale[0] < lengthscale[1:].min() / 2


class Recorded:
    """An objective that keeps where it was asked and what it said, and fails where it is told to."""

    def __init__(self, objective, fails=lambda theta: False):
        self.objective, self.fails, self.seen = objective, fails, []

    def __call__(self, kernel, likelihood):
        value, gradient = self.objective(kernel, likelihood)
        if self.fails(kernel.theta):
            value, gradient = -math.inf, np.zeros_like(gradient)
        self.seen.append((kernel, value))
        return value, gradient

    @property
    def values(self):
        return [value for _, value in self.seen]


@pytest.mark.parametrize("name", ["auto", "se", "matern52-iso", "se+linear-iso+constant"])
@pytest.mark.parametrize("share", [0, 2, 3])
def test_the_result_is_the_best_that_was_seen(rng, monkeypatch, name, share):
    """So it is never worse than a start, wherever the objective fails: nowhere, or in half or a third of all places."""
    monkeypatch.setattr(learning, "PRIOR_SD", np.inf)
    X, y = rng.standard_normal((40, 2)), (rng.uniform(size=40) > 0.5) * 1.0

    def fails(theta):
        """In cells of the parameters, but not at the first start."""
        return share and np.floor(5.0 * (theta - np.log(2.0) / 2.0) + 0.5).sum() % share == 1

    objective = Recorded(objective_of(X, y), fails)
    found = learn(always(objective), name, Bernoulli(), inputs=2, effort=EFFORTS["quick"])
    assert found.evaluations == len(objective.values)
    assert found.objective == max(objective.values)
    assert found.objective >= objective.values[0]
    assert objective_of(X, y)(found.kernel, found.likelihood)[0] == pytest.approx(found.objective, rel=1e-12)
    assert (-math.inf in objective.values) == bool(share)


def test_one_lengthscale_comes_before_many(rng):
    X, y = sample(rng, parse_kernel("se", inputs=2), 60, 0.1)
    objective = Recorded(objective_of(X, y))
    learn(always(objective), "se", Gaussian(0.5), inputs=2, effort=EFFORTS["quick"])
    many = [len(kernel.lengthscale) == 2 for kernel, _ in objective.seen]
    assert not many[0]
    assert many == sorted(many)
    first, value = objective.seen[many.index(True)]
    assert value == max(v for _, v in objective.seen[: many.index(True)])
    assert np.ptp(first.lengthscale) == 0.0


def test_one_input_has_one_lengthscale(rng):
    X = rng.uniform(-2, 2, (60, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    ard, one = (
        learn(always(objective_of(X, y)), name, Gaussian(0.5), inputs=1, effort=EFFORTS["quick"])
        for name in ("se", "se-iso")
    )
    np.testing.assert_array_equal(ard.kernel.theta, one.kernel.theta)
    assert (ard.kernel_name, one.kernel_name) == ("se", "se-iso")


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("name", AUTO_KERNELS)
def test_auto_finds_the_kernel_that_made_the_data(name, inputs):
    """Matern 3/2 and 5/2 may take the place of each other; every kernel says what it came to over the same rows."""
    rng = np.random.default_rng(1)
    truth = parse_kernel(f"{name}-iso", inputs=inputs)
    truth = truth.with_parameters({"variance": np.ones(1), "lengthscale": np.full(1, 0.7)})
    X = rng.uniform(-2, 2, (400, inputs))
    y = np.linalg.cholesky(truth.cross(X, X) + 1e-3 * np.eye(400)) @ rng.standard_normal(400)
    objective = objective_of(X, y, mean="zero")
    found = learn(always(objective), "auto", Gaussian(0.5), inputs=inputs, effort=EFFORTS["normal"])
    assert found.kernel_name in ({"matern32", "matern52"} if name in ("matern32", "matern52") else {name})
    of_all = {name for name in found.tried if "(" not in name}
    assert of_all == {*AUTO_KERNELS, TWO_SCALES}
    assert len(found.tried) - len(of_all) <= (inputs == 2)  # and one with effects of columns
    assert all(map(math.isfinite, found.tried.values()))
    assert found.tried[found.kernel_name] == max(found.tried[one] for one in AUTO_KERNELS)


@pytest.mark.parametrize(
    "name", ["se-iso", "rq", "matern52-iso+constant", "se*linear-iso", "se+linear-iso+constant", "poly2"]
)
@pytest.mark.parametrize("judged", [False, True])
def test_a_kernel_given_by_name_keeps_its_form(rng, name, judged):
    X, y = sample(rng, parse_kernel("se", inputs=2), 40, 0.1)
    objective = objective_of(X, y)
    validation_for = judged_by(lambda kernel, likelihood: objective(kernel, likelihood)[0]) if judged else None
    found = learn(
        always(objective), name, Gaussian(0.5), inputs=2, effort=EFFORTS["quick"], validation_for=validation_for
    )
    wanted = parse_kernel(name, inputs=2).parameters
    assert found.kernel_name == name
    assert list(found.tried) == [name]
    assert {n: v.shape for n, v in found.kernel.parameters.items()} == {n: v.shape for n, v in wanted.items()}


@pytest.mark.parametrize("judged", [False, True])
def test_parameters_of_a_likelihood_are_learned(rng, judged):
    """Drawn with shapes 2 and 3; the learned ones are within a posterior deviation or three."""
    X = rng.uniform(-2, 2, (150, 1))
    mean = np.exp(2.0 + np.sin(2 * X[:, 0]))
    drawn = {
        "negative_binomial": ("shape", 2.0, rng.poisson(mean * rng.gamma(2.0, 0.5, 150))),
        "weibull": ("shape", 3.0, mean / 7 * rng.weibull(3.0, 150)),
    }
    for name, (parameter, truth, y) in drawn.items():
        objective = objective_of(X, y.astype(float))
        validation_for = judged_by(lambda kernel, likelihood, objective=objective: objective(kernel, likelihood)[0])
        found = learn(
            always(objective),
            "se",
            make_likelihood(name),
            inputs=1,
            effort=EFFORTS["quick"],
            validation_for=validation_for if judged else None,
        )
        assert found.noise_factors == ({"dispersion": 1.0} if judged else {})  # the judge is what was climbed
        value = found.likelihood.parameters[parameter][0]
        assert truth / 1.6 < value < truth * 1.6


def left_out_judge(X, y, rows):
    def judge(kernel, likelihood):
        K = kernel.cross(X, X) + 1.0  # the constant mean's prior
        return normal_density(*left_out_errors(K, likelihood, unweighted(y), rows))

    return judge


class Scored:
    """A judge that keeps its best scores by whether there is one lengthscale."""

    def __init__(self, judge):
        self.judge, self.scores = judge, {}

    def __call__(self, kernel, likelihood):
        rows = self.judge(kernel, likelihood)
        one = bool(np.ptp(kernel.lengthscale) == 0.0)
        self.scores[one] = max(rows.sum(), self.scores.get(one, -math.inf))
        return rows


def as_given(rng, rows, scales):
    """Standardised inputs, and targets that are alike where the inputs as given, of unequal spread, are near."""
    X = rng.standard_normal((rows, len(scales)))
    truth = parse_kernel("matern32", inputs=len(scales))
    truth = truth.with_parameters({"variance": np.ones(1), "lengthscale": 2.0 / scales})
    return X, np.linalg.cholesky(truth.cross(X, X) + 0.01 * np.eye(rows)) @ rng.standard_normal(rows)


def test_the_judge_takes_one_lengthscale_where_many_overfit(rng):
    X, y = as_given(rng, 140, np.full(20, 0.4))
    judge = Scored(left_out_judge(X[40:], y[40:], 100))
    objective = objective_of(X[:40], y[:40])
    found = learn(
        always(objective), "se", Gaussian(0.1), inputs=20, effort=EFFORTS["normal"], validation_for=judged_by(judge)
    )
    assert judge.scores[True] > judge.scores[False] + 1.0
    assert np.ptp(found.kernel.lengthscale) == 0.0
    assert found.kernel.lengthscale.shape == (20,)


def test_the_judge_takes_many_lengthscales_where_one_is_not_enough(rng):
    X = rng.standard_normal((200, 5))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    judge = Scored(left_out_judge(X[100:], y[100:], 50))
    objective = objective_of(X[:100], y[:100])
    found = learn(
        always(objective), "se", Gaussian(0.1), inputs=5, effort=EFFORTS["quick"], validation_for=judged_by(judge)
    )
    assert judge.scores[False] > judge.scores[True]
    assert found.kernel.lengthscale[0] < found.kernel.lengthscale[1:].min() / 2


def test_one_lengthscale_is_tried_for_inputs_as_they_were_given(rng):
    """As of principal components: the leading one spreads most, and tells most of distance."""
    scales = np.geomspace(3.0, 0.1, 12)
    X, y = as_given(rng, 140, scales)
    judge, objective = left_out_judge(X[60:], y[60:], 80), objective_of(X[:60], y[:60])
    effort = EFFORTS["quick"]
    found, plain = (
        learn(
            always(objective),
            "se",
            Gaussian(0.1),
            inputs=12,
            effort=effort,
            scales=s,
            validation_for=judged_by(judge),
        )
        for s in (scales, None)
    )
    np.testing.assert_allclose(found.kernel.lengthscale * scales, found.kernel.lengthscale[0] * scales[0], rtol=1e-9)
    assert judge(found.kernel, found.likelihood).sum() > judge(plain.kernel, plain.likelihood).sum() + 1.0


def test_inputs_of_equal_spread_are_not_tried_twice(rng):
    X, y = sample(rng, parse_kernel("se", inputs=2), 40, 0.1)
    objective, effort = objective_of(X, y), EFFORTS["quick"]
    same, without = (
        learn(always(objective), "se", Gaussian(0.5), inputs=2, effort=effort, scales=s)
        for s in (np.full(2, 3.0), None)
    )
    assert same.evaluations == without.evaluations


def test_tied_lengthscales_move_together_up_to_the_bound_of_the_least(rng):
    """Those that are at a bound already do not stop the others."""
    kernel = parse_kernel("se", inputs=3).with_parameters({"lengthscale": np.array([1.0, 2.0, 1e3])})

    def slope(kernel, likelihood):
        return np.log(kernel.lengthscale[0]), np.array([0.0, 1.0, 0.0, 0.0, 0.0])

    search = learning._Search(slope, 3)
    found = search.climb(search.at("se", kernel, Gaussian(0.1), tied=True), 30)
    assert found.kernel.lengthscale[0] > 2.0
    assert found.kernel.lengthscale[1] == pytest.approx(2.0 * found.kernel.lengthscale[0], rel=1e-9)
    assert found.kernel.lengthscale[2] == pytest.approx(1e3, rel=1e-9)


def test_rows_are_sought_anew_in_every_round_with_the_best_kernel_so_far(rng):
    X, y = sample(rng, parse_kernel("se", inputs=2), 60, 0.1)
    objective, asked = Recorded(objective_of(X, y)), []

    def objective_for(kernel):
        asked.append((kernel, len(objective.seen)))
        return objective

    effort = EFFORTS["thorough"]
    judge = left_out_judge(X, y, 30)
    found = learn(objective_for, "se", Gaussian(0.5), inputs=2, effort=effort, validation_for=judged_by(judge))
    assert asked[0] == (None, 0)
    assert len(asked) == 2 + effort.rounds
    for (kernel, at), (_, until) in itertools.pairwise([*asked[1:], (None, len(objective.seen))]):
        np.testing.assert_array_equal(objective.seen[at][0].theta, kernel.theta)  # where the round begins
        assert until > at
    assert found.evaluations == len(objective.seen)


def pairs(rng, rows, disagreement):
    """A smooth wave with noise 0.01, each row twice at nearly the same place, where targets differ by so much more."""
    X = np.repeat(rng.uniform(-2, 2, (rows, 1)), 2, axis=0) + 1e-3 * rng.standard_normal((2 * rows, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(2 * rows)
    return X, y + disagreement * rng.standard_normal(2 * rows)


@pytest.mark.parametrize("disagreement", [0.0, 0.5])
def test_noise_is_settled_upwards_where_neighbours_left_out_disagree(rng, disagreement):
    X, y = pairs(rng, 60, 0.0)
    objective = objective_of(X, y)
    judge = left_out_judge(*pairs(rng, 60, disagreement), 100)
    found = learn(
        always(objective), "se", Gaussian(0.1), inputs=1, effort=EFFORTS["quick"], validation_for=judged_by(judge)
    )
    noise = found.likelihood.noise_variance[0] / found.noise_factors["noise"]
    assert noise == pytest.approx(0.01, rel=0.4)  # that of the rows whose evidence was climbed
    if disagreement:
        assert found.noise_factors["noise"] > 8.0
        assert 0.13 < found.likelihood.noise_variance[0] < 0.52  # steps are powers of four
    else:
        assert found.noise_factors["noise"] == 1.0


def test_kernels_are_compared_with_settled_variances():
    """One that errs on a few rows for lack of noise is not worse for that."""

    def objective(kernel, likelihood):
        return float(kernel.expression == "se"), np.zeros(len(kernel.theta) + 1)

    def judge(kernel, likelihood):
        if kernel.expression != "se":
            return -50.0
        return -40.0 if likelihood.noise_variance[0] > 0.3 else -100.0

    found = learn(
        always(objective), "auto", Gaussian(0.1), inputs=2, effort=EFFORTS["quick"], validation_for=judged_by(judge)
    )
    assert found.kernel_name == "se"
    assert found.noise_factors["noise"] == 4.0


def test_who_settles_variances_does_not_decide():
    def objective(kernel, likelihood):
        return float(kernel.expression == "se"), np.zeros(len(kernel.theta) + 1)

    def noise_score(kernel, likelihood):
        return 10.0 * (kernel.expression == "se") + 5.0 * (likelihood.noise_variance[0] > 0.3)

    def model_score(kernel, likelihood):
        return -1.0 * (kernel.expression == "se")

    judges, effort = seated(noise_score, model_score), EFFORTS["quick"]
    found = learn(always(objective), "auto", Gaussian(0.1), inputs=2, effort=effort, validation_for=judges)
    assert found.kernel_name != "se"
    assert found.noise_factors["noise"] == 4.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_all_parameters_that_end_at_a_bound_are_named(sign):
    def slope(kernel, likelihood):
        theta = theta_of(Point("rq", kernel, likelihood, 0.0))
        return sign * 1e3 * theta.sum(), np.full(len(theta), sign * 1e3)

    found = learn(always(slope), "rq", NegativeBinomial(1.0), inputs=2, effort=EFFORTS["quick"])
    assert set(found.at_bounds) == {
        "kernel.variance",
        "kernel.alpha",
        "kernel.lengthscale[0]",
        "kernel.lengthscale[1]",
        "likelihood.shape",
    }


def test_bounds_that_are_hit_are_named(rng):
    X = rng.standard_normal((80, 2))
    found = learn(always(objective_of(X, X[:, 0])), "se", Gaussian(0.1), inputs=2, effort=EFFORTS["thorough"])
    assert "likelihood.noise_variance" in found.at_bounds  # the target has no noise


def test_failures_of_the_objective_are_walls_and_not_ends(rng):
    X = rng.uniform(-2, 2, (60, 2))
    inner = objective_of(X, np.sin(X[:, 0]))

    def walled(kernel, likelihood):
        if kernel.parameters["lengthscale"].max() > 3.0:
            return -math.inf, np.zeros(len(kernel.theta) + 1)
        return inner(kernel, likelihood)

    found = learn(always(walled), "se-iso", Gaussian(0.1), inputs=2, effort=EFFORTS["quick"])
    assert found.kernel.lengthscale.max() <= 3.0
    with pytest.raises(NotPositiveDefinite, match=r"expected a finite evidence of se at some start, got none.*--set"):
        learn(always(lambda k, _: (-math.inf, np.zeros(3))), "se", Gaussian(0.1), inputs=2, effort=EFFORTS["quick"])


@pytest.mark.parametrize(("gain", "linear"), [(0.0, False), (0.4, False), (0.6, True)])
def test_a_linear_mean_wins_by_evidence_and_not_by_more_steps(rng, gain, linear):
    """Of objectives that differ by a constant, where the search for the first one has stopped early."""
    level = objective_of(*sample(rng, parse_kernel("se", inputs=2), 60, 0.1))

    def trend(kernel, likelihood):
        value, gradient = level(kernel, likelihood)
        return value + gain, gradient

    short = replace(EFFORTS["quick"], isotropic_steps=1, steps=1)
    learned = learn(always(level), "se", Gaussian(0.1), inputs=2, effort=short, trend=trend)
    assert learned.linear == linear
    (decision,) = learned.decisions
    assert decision.unit == "nats"
    ((other, found),) = decision.over.items()
    assert (decision.taken, other) == (("linear", "constant") if linear else ("constant", "linear"))
    assert found.nats == pytest.approx(gain if linear else -gain)


def test_efforts_are_ordered():
    efforts = [EFFORTS[name] for name in ("quick", "normal", "thorough")]
    for field in ("rows", "block", "per_density", "rounds", "isotropic_steps", "steps"):
        values = [getattr(effort, field) for effort in efforts]
        assert values == sorted(values)


def trend_and_wave(rng, rows=120):
    """Targets with a plane through the origin, a wave in the first input, an offset and little noise."""
    X = rng.uniform(-1.5, 1.5, (rows, 2))
    return X, X @ [0.8, -0.5] + 0.4 * np.sin(6.0 * X[:, 0]) + 0.5 + 0.1 * rng.standard_normal(rows)


def test_the_kernel_of_williams_and_rasmussen_learns_a_trend_and_a_wave(rng):
    """Their eq. 3: with the linear terms predictions follow the trend beyond the data, without they return to 0."""
    X, y = trend_and_wave(rng)
    far = np.array([[4.0, -4.0], [-4.0, 4.0]])
    said = {}
    for name in ("se+linear-iso+constant", "se"):
        found = learn(always(objective_of(X, y, mean="zero")), name, Gaussian(0.1), inputs=2, effort=EFFORTS["normal"])
        S = found.kernel.cross(X, X) + found.likelihood.noise_variance * np.eye(len(X))
        said[name] = found.kernel.cross(far, X) @ np.linalg.solve(S, y)
        np.testing.assert_allclose(found.likelihood.noise_variance, 0.01, rtol=0.5)
    assert list(found.kernel.parameters) == ["variance", "lengthscale"]
    truth = far @ [0.8, -0.5] + 0.5
    np.testing.assert_allclose(said["se+linear-iso+constant"], truth, atol=1.0)  # 5.7, -4.7; the wave has .4
    assert np.abs(said["se"] - truth).max() > 2.0


@pytest.mark.parametrize("name", ["se+linear+constant", "se+linear-iso+constant"])
def test_parameters_bounds_and_prior_of_a_sum_go_together(rng, name):
    X, y = trend_and_wave(rng, 40)
    search = learning._Search(objective_of(X, y, mean="zero"), 2)
    full = parse_kernel(name, inputs=2)
    for kernel in (full, full.isotropic()):
        point = search.at(name, kernel, Gaussian(0.3))
        theta = theta_of(point)
        labels = list(parameters_of(point))
        assert labels[0] == "kernel.se.variance"
        assert {"kernel.linear.lengthscale", "kernel.constant.variance"} < set(labels)
        assert len(theta) == len(bounds_of(point)) == len(prior_center(point, 2))
        np.testing.assert_allclose(np.exp(prior_center(point, 2))[:-1], np.exp(theta)[:-1])
        start, h = theta + 0.3 * rng.standard_normal(len(theta)), 1e-5

        def value(theta, point=point):
            return search._penalised(moved(point, theta), theta, search._prior(point))

        numeric = [(value(start + h * e)[0] - value(start - h * e)[0]) / (2.0 * h) for e in np.eye(len(theta))]
        np.testing.assert_allclose(value(start)[1], numeric, rtol=1e-6, atol=1e-6)  # h^2, and rounding over h
    assert expanded(point, 2).kernel.parameters.keys() == full.parameters.keys()


def bowl(lowest, *, wall=math.inf):
    """Largest where the log of the lengthscale is so large; fails beyond a wall."""

    def objective(kernel, likelihood):
        gap = np.log(kernel.parameters["lengthscale"][0]) - lowest
        slope = np.where(np.array(list(kernel.parameters)) == "lengthscale", -40.0 * gap, 0.0)
        failed = gap + lowest > wall
        return -math.inf if failed else -20.0 * gap**2, np.append(slope * (not failed), 0.0)

    return objective


def test_a_place_that_fails_over_other_rows_is_looked_for_anew():
    """The first rows end where those after them cannot be evaluated at all."""
    first, then = bowl(2.0), bowl(-1.0, wall=1.0)
    found = learn(lambda kernel: then if kernel else first, "se", Gaussian(0.1), inputs=1, effort=EFFORTS["quick"])
    assert np.log(found.kernel.parameters["lengthscale"][0]) == pytest.approx(-1.0, abs=0.1)
    assert found.tried


def test_auto_takes_two_scales_where_the_data_have_them(rng):
    X = rng.uniform(-2, 2, (300, 2))
    short, long = (
        parse_kernel(name, inputs=2).with_parameters({"lengthscale": np.array(lengths)})
        for name, lengths in (("matern12", [0.5, 50.0]), ("se", [50.0, 0.8]))
    )
    K = 0.3 * short.cross(X, X) + long.cross(X, X) + 0.01 * np.eye(300)
    y = np.linalg.cholesky(K) @ rng.standard_normal(300)
    how = {"inputs": 2, "effort": EFFORTS["normal"]}
    found = learn(always(objective_of(X, y)), "auto", Gaussian(0.5), **how)
    assert found.kernel_name == TWO_SCALES
    assert found.tried[TWO_SCALES] == max(found.tried.values())
    quick = learn(always(objective_of(X, y)), "auto", Gaussian(0.5), inputs=2, effort=EFFORTS["quick"])
    assert TWO_SCALES not in quick.tried


def test_a_climb_ends_early_where_its_goal_is_out_of_reach():
    steep = np.geomspace(1.0, 1e4, 6)

    def slope(kernel, likelihood):
        away = np.log(kernel.lengthscale) - 2.0
        return -(steep @ away**2), np.concatenate([[0.0], -2.0 * steep * away, [0.0]])

    search = learning._Search(slope, 6)
    start = search.at("se", parse_kernel("se", inputs=6), Gaussian(0.1))
    ends = {}
    for goal in (-np.inf, -10.0, 1e6):
        before = search.evaluations
        ends[goal] = search.climb(start, 30, goal=goal).objective, search.evaluations - before
    assert ends[-10.0] == ends[-np.inf]
    assert ends[1e6][1] < ends[-np.inf][1]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_climb_over_repeated_inputs_begins_with_noise(seed):
    """Noise that was learned without repeated inputs is a cliff over rows that have some, with other targets."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.uniform(-2, 2, (150, 6)), 2, axis=0)
    y = np.sin(2 * X[:, 0]) + np.cos(X[:, 1]) + 0.5 * rng.standard_normal(len(X))
    search, kernel = learning._Search(objective_of(X, y), inputs=6), parse_kernel("matern32", inputs=6)
    without, with_noise = (search.climb(search.at("matern32", kernel, Gaussian(v)), 10) for v in (1e-8, 0.25))
    assert without.objective == pytest.approx(
        with_noise.objective, abs=15.0
    )  # of ten steps; it was lower by more than 90
    assert without.likelihood.parameters["noise_variance"] == pytest.approx(0.25, rel=0.4)


@pytest.mark.parametrize("after", [-1.0, 2.0])
def test_a_linear_mean_takes_what_it_climbs_to_unless_rows_left_out_are_worse(after):
    best, climbed = (Point("se", parse_kernel("se", inputs=1), Gaussian(noise), 0.0) for noise in (0.1, 0.2))
    search = learning._Search(None, inputs=1)
    search.climb, search.again = lambda *_: climbed, lambda point: point
    value = {0.1: 1.0, 0.2: after}

    def score(of):
        return lambda _, likelihood: Score((np.full(50, of(float(likelihood.parameters["noise_variance"][0]))),))

    trend = CrossValidation(score(value.get), score(value.get))
    validation = CrossValidation(score(lambda _: 0.0), score(lambda _: 0.0), trend)
    found, _, linear, _ = mean_by_rows(search, best, validation, lambda *_: None, EFFORTS["quick"])
    assert linear
    assert found is (climbed if after > 1.0 else best)
