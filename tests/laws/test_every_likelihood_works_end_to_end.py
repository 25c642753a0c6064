"""Every likelihood through the facade: fitted, scored, predicted, and refused where the data do not suit it."""

import re

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.data.groups import open_group
from bcmdist.errors import InvalidData, InvalidOption, MemoryLimit, NotPositiveDefinite, UnsupportedTarget
from bcmdist.experts import laplace
from bcmdist.model.likelihoods import LIKELIHOODS, make_likelihood

ROWS = 200
RNG_SEED = 7


def columns(likelihood):
    """Generated data of a family: the latent is a wave of amplitude one about a large or small level."""
    rng = np.random.default_rng(RNG_SEED)
    X = rng.uniform(-2, 2, (ROWS, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    task = LIKELIHOODS[likelihood].task
    if task == "counts":
        exposure = rng.uniform(0.5, 2.0, ROWS)
        return {"X": X, "y": rng.poisson(exposure * 20 * np.exp(f)), "exposure": exposure}
    if task == "lifetimes":
        time, end = 300 * rng.exponential(np.exp(f)), 300 * rng.exponential(3.0, ROWS)
        return {"X": X, "y": np.minimum(time, end), "event": (time <= end).astype(np.uint8)}
    if task == "binomial":
        trials = rng.integers(1, 30, ROWS)
        return {"X": X, "y": rng.binomial(trials, 1 / (1 + np.exp(-2 * f))), "trials": trials}
    if LIKELIHOODS[likelihood].per_class:
        return {"X": X, "y": 3 + 2 * np.digitize(f + 0.1 * rng.standard_normal(ROWS), [-0.5, 0.5])}
    if task == "classification":
        return {"X": X, "y": (f + 0.1 * rng.standard_normal(ROWS) > 0).astype(np.uint8)}
    if likelihood in ("gamma", "inverse_gaussian"):
        return {"X": X, "y": 50 * np.exp(f) * rng.gamma(20, 1 / 20, ROWS)}
    return {"X": X, "y": 100 + 10 * f + rng.standard_t(4, ROWS)}


def settings(likelihood, **changes):
    given = {
        "task": LIKELIHOODS[likelihood].task,
        "likelihood": likelihood,
        "kernel": "se",
        "query": 20,
        "rows_per_expert": 50,
    }
    return Settings(**given | {"learn": False} | changes)


PLACES = {"coverage50", "coverage80", "coverage95", "interval_score", "pit", "pit_distance"}
FIGURES = {
    "regression": {"rmse", "nmse", "mae", "mnlp", "crps"} | PLACES,
    "classification": {"accuracy", "log_loss", "brier", "ece", "auc"},
    "counts": {"mnlp", "deviance", "concordance", "mae"} | PLACES,
    "lifetimes": {"mnlp", "deviance", "concordance", "mae"} | PLACES,
    "binomial": {"mnlp", "deviance", "concordance", "mae"} | PLACES,
}


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [name for name in LIKELIHOODS if not LIKELIHOODS[name].independent_processes])
def test_fit_score_and_predict(make_data, tmp_path, likelihood):
    data = columns(likelihood)
    path = make_data(**data)
    gbcm = GBCM.fit(path, settings(likelihood), model=tmp_path / "model")
    figures = gbcm.score(path)
    assert figures.keys() - {"rows"} == FIGURES[LIKELIHOODS[likelihood].task]
    unknown = {"interval_score"} if np.any(data.get("event", 1) == 0) else set()  # limits of censored rows
    assert {name for name, v in figures.items() if not np.all(np.isfinite(v))} == unknown
    companions = {name: data[name] for name in ("exposure", "trials") if name in data}
    told = GBCM.load(tmp_path / "model").predict(data["X"], **companions)
    assert all(len(values) == ROWS and np.all(np.isfinite(values)) for values in told.values())
    match LIKELIHOODS[likelihood].task:
        case "classification":
            assert figures["accuracy"] > 0.65  # the default hyper-parameters are too smooth here
            assert set(np.unique(told["label"])) <= set(np.unique(data["y"]))
            np.testing.assert_allclose(told["probability"].sum(axis=1), 1.0, rtol=1e-9)
        case "regression":
            assert figures["nmse"] < 0.5
        case _:
            assert figures["concordance"] > 0.65
            inside = (told["lower95"] <= data["y"]) & (data["y"] <= told["upper95"])
            if likelihood != "exponential":
                assert inside.mean() > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["negative_binomial", "weibull", "gamma", "student_t", "inverse_gaussian"])
def test_shape_and_dispersion_are_learned(make_data, likelihood):
    gbcm = GBCM.fit(make_data(**columns(likelihood)), settings(likelihood, learn=True, effort="quick"))
    learned = gbcm.info()["hyperparameters"]
    default = make_likelihood(likelihood).parameters
    for name, value in default.items():
        assert learned[f"likelihood.{name}"] != value.tolist()
    if likelihood == "gamma":  # drawn with shape 20
        assert 10 < learned["likelihood.shape"][0] < 40
    if likelihood == "weibull":  # drawn with shape 1
        assert 0.7 < learned["likelihood.shape"][0] < 1.4


@pytest.mark.slow
def test_the_shape_of_lives_that_mostly_end_at_once_is_learned(make_data):
    """Drawn with shape .2: a quarter of them last less than a ten-thousandth of the mean."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2))
    times = np.exp(np.sin(X[:, 0])) * rng.weibull(0.2, 400)
    limit = 10 * np.quantile(times, 0.8)
    path = make_data(X=X, y=np.minimum(times, limit), event=(times <= limit) * 1.0)
    learned = GBCM.fit(path, settings("weibull", learn=True, effort="quick")).info()["hyperparameters"]
    np.testing.assert_allclose(learned["likelihood.shape"], 0.2, rtol=0.15)  # standard error .78 shape / sqrt(events)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["softmax", "svm", "onehot"])
def test_class_likelihoods_learn(make_data, likelihood):
    path = make_data(**columns(likelihood))
    gbcm = GBCM.fit(path, settings(likelihood, learn=True, effort="quick"))
    assert gbcm.score(path)["accuracy"] > 0.85


@pytest.mark.slow
def test_units_do_not_matter(make_data):
    """Times in days or seconds, counts per hour or per second: the same predictions in other units."""
    for likelihood, name, factor in [("weibull", "y", 86_400.0), ("poisson", "exposure", 1 / 3600)]:
        data = {key: values[:90] for key, values in columns(likelihood).items()}  # residuals of 100 have random parts
        other = data | {name: data[name] * factor}
        one = GBCM.fit(make_data(f"{likelihood}-one.zarr", **data), settings(likelihood))
        two = GBCM.fit(make_data(f"{likelihood}-two.zarr", **other), settings(likelihood))
        more = {"exposure": data["exposure"]} if name == "exposure" else {}
        a = one.predict(data["X"], **more)
        b = two.predict(data["X"], **{n: v * factor for n, v in more.items()})
        scale = factor if name == "y" else 1.0
        for quantity in ("observation_mean", "lower95", "upper95"):
            np.testing.assert_allclose(b[quantity], scale * a[quantity], rtol=1e-5)  # of the quantile search


BAD = [
    ("poisson", {"y": -1.0}, "whole numbers|counts", 13),
    ("poisson", {"y": 2.5}, "", 13),
    ("negative_binomial", {"exposure": 0.0}, "exposure 0", 13),
    ("weibull", {"y": -3.0}, "got -3", 13),
    ("weibull", {"event": 2.0}, "event 2", 13),
    ("binomial", {"y": 40.0}, "got 40, trials", 13),
    ("gamma", {"y": 0.0}, "got 0", 13),
    ("inverse_gaussian", {"y": -1.0}, "got -1", 13),
    ("probit", {"y": 2.0}, "got 2", 13),
    ("softmax", {"y": 1.5}, "whole numbers as class labels in y.*got 1.5", 13),
]


@pytest.mark.parametrize(("likelihood", "wrong", "text", "row"), BAD)
def test_rows_outside_the_support_are_named(make_data, tmp_path, likelihood, wrong, text, row):
    data = {name: np.array(column, dtype=float) for name, column in columns(likelihood).items()}
    for name, value in wrong.items():
        data[name][row] = value
    with pytest.raises(
        UnsupportedTarget, match=rf"for the likelihood {likelihood}, got .* at row {row} \(1 such"
    ) as found:
        GBCM.fit(make_data(**data), settings(likelihood), model=tmp_path / "model")
    assert re.search(text, str(found.value))
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_class_unseen_in_some_partitions_works(make_data):
    data = columns("softmax")
    order = np.argsort(data["y"], kind="stable")
    path = make_data(**{name: column[order] for name, column in data.items()})
    for likelihood in (
        name for name in LIKELIHOODS if LIKELIHOODS[name].per_class and not LIKELIHOODS[name].independent_processes
    ):
        # Experts that have seen one class only are sure of it in the first pass: more passes set them right.
        assert GBCM.fit(path, settings(likelihood, passes="auto")).score(path)["accuracy"] > 0.5


def test_a_class_unseen_in_training_is_an_error_at_score(make_data):
    data = columns("softmax")
    gbcm = GBCM.fit(make_data(**data), settings("softmax"))
    other = data["y"].copy()
    other[[4, 9]] = 8
    with pytest.raises(UnsupportedTarget, match=r"classes of the training data \(3, 5, 7\) .* got 8 at row 4 \(2"):
        gbcm.score(make_data("other.zarr", X=data["X"], y=other))


@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")  # all targets equal
@pytest.mark.parametrize("labels", [(0,), (4,), (-1, 1), (5, 9)])
def test_one_class_and_any_two_labels_work(make_data, labels):
    data = columns("bernoulli")
    y = np.asarray(labels)[data["y"] % len(labels)]
    path = make_data(X=data["X"], y=y)
    gbcm = GBCM.fit(path, Settings(task="classification", kernel="se", learn=False, query=20, rows_per_expert=50))
    told = gbcm.predict(data["X"])
    assert set(np.unique(told["label"])) <= set(labels)
    assert gbcm.score(path)["accuracy"] > 0.7


@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")  # all targets equal
@pytest.mark.slow
def test_awkward_data_work(make_data):
    """Counts up to a million, nothing but zeros, all lives censored, separable classes, saturated latents."""
    rng = np.random.default_rng(RNG_SEED)
    X = rng.uniform(-2, 2, (ROWS, 2))
    cases = [
        ("poisson", {"y": rng.poisson(np.exp(7 * X[:, 0]))}),
        ("negative_binomial", {"y": np.where(X[:, 0] > 0, 1_000_000, 0)}),
        ("poisson", {"y": np.zeros(ROWS)}),
        ("weibull", {"y": rng.exponential(1.0, ROWS), "event": np.zeros(ROWS)}),
        ("exponential", {"y": np.where(rng.uniform(size=ROWS) < 0.1, 0.0, rng.exponential(1e6, ROWS))}),
        ("bernoulli", {"y": (X[:, 0] > 0) * 1.0}),
        ("probit", {"y": (X[:, 0] > 0) * 1.0}),
        ("softmax", {"y": np.sign(X[:, 0]) + np.sign(X[:, 1])}),
        ("svm", {"y": (X[:, 0] > 0) * 1.0}),
    ]
    for number, (likelihood, data) in enumerate(cases):
        path = make_data(f"{number}.zarr", X=X, **data)
        for passes in ("1", "auto"):
            gbcm = GBCM.fit(path, settings(likelihood, passes=passes))
            score, unknown = gbcm.score(path), ("concordance", "auc", "interval_score")
            assert all(np.all(np.isfinite(v)) for n, v in score.items() if n not in unknown), likelihood


def test_option_combinations_that_mean_nothing():
    with pytest.raises(InvalidOption, match="expected one of negative_binomial, poisson for counts, got gamma"):
        Settings(task="counts", likelihood="gamma")
    with pytest.raises(InvalidOption, match="linearise: expected own with softmax"):
        Settings(likelihood="softmax", linearise="running")
    with pytest.raises(InvalidOption, match="linearise: expected own with several passes"):
        Settings(likelihood="poisson", linearise="running", passes="auto")


def test_exposure_of_new_rows_is_checked(make_data):
    data = columns("poisson")
    gbcm = GBCM.fit(make_data(**data), settings("poisson"))
    with pytest.raises(InvalidData, match="exposure: expected positive numbers"):
        gbcm.predict(data["X"], exposure=0.0)


@pytest.mark.slow
def test_coupled_classes_that_do_not_fit_are_refused(make_data, tmp_path):
    """Before learning, with both numbers, and with the form that does fit."""
    rng = np.random.default_rng(RNG_SEED)
    path = make_data(X=rng.standard_normal((ROWS, 2)), y=rng.integers(0, 26, ROWS))
    runtime = SerialRuntime(allowed_bytes=400 * 2**20)
    with pytest.raises(MemoryLimit, match=r"of 26 classes: .* would need .* GB; .*--likelihood softmax needs less"):
        GBCM.fit(path, settings("softmax_coupled", query=150), model=tmp_path / "model", runtime=runtime)
    assert GBCM.fit(path, settings("softmax", query=150), runtime=runtime).committee.total.rows == ROWS


@pytest.mark.slow
def test_quantiles_at_any_level(make_data):
    for likelihood in ("gaussian", "weibull", "negative_binomial"):
        data = columns(likelihood)
        gbcm = GBCM.fit(make_data(f"{likelihood}.zarr", **data), settings(likelihood))
        told = gbcm.predict(data["X"][:9], quantiles=(0.025, 0.5, 0.9))
        np.testing.assert_allclose(told["quantile0.025"], told["lower95"], rtol=1e-6)
        assert np.all((told["quantile0.025"] <= told["quantile0.5"]) & (told["quantile0.5"] <= told["quantile0.9"]))
        with pytest.raises(InvalidOption, match="quantiles: expected levels between 0 and 1"):
            gbcm.predict(data["X"], quantiles=(1.5,))


@pytest.mark.slow
def test_learning_that_fails_everywhere_says_why(make_data, monkeypatch):
    monkeypatch.setattr(laplace, "NEWTON_STEPS", 1)
    with pytest.raises(NotPositiveDefinite, match=r"got none; .* the last failure: .*\[0:50\]: expected the score"):
        GBCM.fit(make_data(**columns("poisson")), settings("poisson", learn=True, partition="chunks"))


@pytest.mark.slow
def test_predictions_of_every_companion_go_to_zarr(make_data, tmp_path):
    for likelihood in ("binomial", "negative_binomial", "weibull", "onehot"):
        data = columns(likelihood)
        path = make_data(f"{likelihood}.zarr", **data)
        gbcm = GBCM.fit(path, settings(likelihood))
        out = tmp_path / f"{likelihood}-out.zarr"
        assert gbcm.predict_zarr(path, out) == ROWS
        names = set(open_group(out).array_keys())
        companions = {n: data[n] for n in ("exposure", "trials") if n in data}
        told = gbcm.predict(data["X"], **companions)
        assert names == set(told) | ({"class"} if likelihood == "onehot" else set())  # labels of the classes
        for name in told:
            np.testing.assert_allclose(open_group(out)[name][...], told[name], rtol=1e-9)
    data = columns("poisson")
    gbcm = GBCM.fit(make_data("counts.zarr", **data), settings("poisson"))
    wrong = make_data("wrong.zarr", X=data["X"], exposure=np.where(np.arange(ROWS) == 7, 0.0, 1.0))
    with pytest.raises(UnsupportedTarget, match="exposure 0 at row 7"):
        gbcm.predict_zarr(wrong, tmp_path / "wrong-out.zarr")
    with pytest.raises(InvalidData, match="exposure: expected one number or 200 of them"):
        gbcm.predict(data["X"], exposure=np.ones(3))


@pytest.mark.slow
def test_rows_without_trials_are_scored(make_data):
    data = columns("binomial")
    data["trials"][3] = data["y"][3] = 0
    path = make_data(**data)
    assert np.isfinite(GBCM.fit(path, settings("binomial")).score(path)["deviance"])


@pytest.mark.slow
def test_degrees_of_coupled_classes_are_those_of_one(make_data):
    path = make_data(**columns("softmax"))
    independent_processes, coupled = (
        GBCM.fit(path, settings(name)).info()["p_eff"] for name in ("softmax", "softmax_coupled")
    )
    assert 0.4 < coupled / independent_processes < 1.1


def test_approximations_of_many_classes_are_checked_before_anything_is_written(make_data, tmp_path):
    path = make_data(**columns("softmax"))
    for options, expected in (({"approximation": "ep"}, "laplace"), ({"linearise": "running"}, "own")):
        given = Settings(task="classification", kernel="se", learn=False, query=20, **options)
        with pytest.raises(InvalidOption, match=f"expected {expected} with onehot, got .*; leave it out"):
            GBCM.fit(path, given, model=tmp_path / "model")
        assert not (tmp_path / "model").exists()
