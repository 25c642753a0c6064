"""An expert of a user's own, as another package would add it: random Fourier features with a rest of none or diagonal.

Everything here goes through what is public; the answers are those of dense Bayesian linear regression and FITC.
"""

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from bcmdist import GBCM, Settings, register_expert, sample_posterior
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import BcmdistWarning, InvalidOption, ModelDamaged, ModelsDiffer
from bcmdist.learning.basis_evidence import gains
from bcmdist.learning.experts import EXPERTS, BasisInputs, weights_of
from bcmdist.model.likelihoods import Bernoulli
from bcmdist.model.mean import Mean
from bcmdist.model.shared.weights import Basis, Weights, register_basis
from bcmdist.prediction.errors.error_distribution import error_distribution_of
from bcmdist.storage.commits import open_store
from oracles import independent_rest, laplace_prediction, linear_regression
from problems import assert_same_committee, make_kernel, only

# Of the variance of the kernel, what the features have; the rest is each row's own.
SHARE = 0.9


@register_basis
@dataclass(frozen=True)
class Waves(Basis):
    """cos and sin of frequencies (B / 2, D) times the input."""

    name: ClassVar[str] = "toy_waves"
    frequencies: np.ndarray

    @property
    def inputs(self):
        return self.frequencies.shape[1]

    @property
    def functions(self):
        return 2 * len(self.frequencies)

    def features(self, X):
        phase = X @ self.frequencies.T
        return np.hstack([np.cos(phase), np.sin(phase)])

    def to_arrays(self):
        return {"frequencies": self.frequencies}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(arrays["frequencies"])


def draw(known: BasisInputs, share):
    """Frequencies of a squared exponential kernel (Rahimi & Recht 2007), and what each weight may vary."""
    parameters, inputs = known.kernel.parameters, known.sample.shape[1]
    half = known.count // 2
    unit = np.random.default_rng(known.seed).standard_normal((half, inputs))
    return Waves(unit / parameters["lengthscale"]), np.sqrt(share * parameters["variance"] / half)


register_expert("toy_waves", weights_of(partial(draw, share=1.0)), residual="none")
register_expert("toy_waves_and_rest", weights_of(partial(draw, share=SHARE)), residual="diagonal")
RESIDUAL = {"toy_waves": "none", "toy_waves_and_rest": "diagonal"}

GIVEN = {"kernel.variance": 1.5, "kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.05}
REGRESSION = Settings(kernel="se", learn=False, set=GIVEN, query=31, rows_per_expert=50)
CLASSES = replace(REGRESSION, task="classification", set={n: v for n, v in GIVEN.items() if n.startswith("kernel")})


@pytest.fixture(params=["toy_waves", "toy_waves_and_rest"])
def expert(request):
    return request.param


@pytest.fixture
def fitted(wave, expert, tmp_path):
    """A committee of five partitions, and the path of its data."""
    path, *_ = wave
    return GBCM.fit(path, replace(REGRESSION, expert=expert), model=tmp_path / "model"), path


def columns(gbcm, X):
    """Columns of all weights at X, from the stored frequencies alone, and what they leave of each row."""
    arrays, facts = gbcm.model.to_arrays()
    assert (facts["shared"], facts["basis"], facts["mean"]) == ("weights", "toy_waves", "constant")
    scaled = (X - arrays["x_mean"]) / arrays["x_scale"]
    phase = scaled @ arrays["basis_frequencies"].T
    waves = np.hstack([np.cos(phase), np.sin(phase)]) * arrays["weight_scale"]
    rest = {"none": 0.0, "diagonal": (1 - SHARE) * GIVEN["kernel.variance"]}[facts["residual"]]
    return np.hstack([waves, np.full((len(X), 1), 5.0)]), np.full(len(X), rest)


def dense(gbcm, X, y, Xs):
    """Mean and variance of f at Xs and log evidence, in original units, by dense matrices."""
    (V, rest), (Vs, rests) = columns(gbcm, X), columns(gbcm, Xs)
    shift, unit = y.mean(), y.std()
    m, v, evidence = independent_rest(V, rest, (y - shift) / unit, GIVEN["likelihood.noise_variance"], Vs, rests)
    return shift + unit * m, unit**2 * v, evidence - len(y) * np.log(unit)


def test_predictions_are_those_of_dense_regression(fitted, wave, rng):
    gbcm, (_, X, y) = fitted[0], wave
    new = rng.uniform(-4, 4, (30, 2))
    mean, variance, evidence = dense(gbcm, X, y, new)
    found = gbcm.predict(new)
    np.testing.assert_allclose(found["mean"], mean, atol=1e-9)
    np.testing.assert_allclose(found["variance"], variance, atol=1e-9)
    np.testing.assert_allclose(found["observation_variance"], variance + 0.05 * y.var(), atol=1e-9)
    assert gbcm.info()["log_evidence"] == pytest.approx(evidence, abs=1e-7)
    joint_mean, covariance = gbcm.predict_joint(new)
    np.testing.assert_allclose(joint_mean, mean, atol=1e-9)
    np.testing.assert_allclose(np.diag(covariance), variance, atol=1e-9)
    assert gbcm.sample(new, size=3).shape == (3, 30)


def test_without_a_rest_it_is_bayesian_linear_regression(wave, rng):
    path, X, y = wave
    gbcm, new = GBCM.fit(path, replace(REGRESSION, expert="toy_waves")), rng.uniform(-4, 4, (30, 2))
    Phi, Phis = columns(gbcm, X)[0], columns(gbcm, new)[0]
    mean, covariance = linear_regression(Phi, (y - y.mean()) / y.std(), GIVEN["likelihood.noise_variance"], Phis)
    found = gbcm.predict_joint(new)
    np.testing.assert_allclose(found[0], y.mean() + y.std() * mean, atol=1e-9)
    np.testing.assert_allclose(found[1], y.var() * covariance, atol=1e-9)


def test_info_says_what_it_is(fitted, expert):
    found = fitted[0].info()
    assert (found["expert"], found["query"], found["jitter"]) == (expert, 30, 0.0)
    assert found["hyperparameters"]["kernel.lengthscale"] == [0.7, 0.7]
    assert "30 basis functions" in found["advice"]
    assert "determine" not in found["advice"]  # one more was asked for than there are, which is all this says


def test_score_is_that_of_its_predictions(fitted, wave, make_data, rng):
    gbcm, (_, X, y) = fitted[0], wave
    new = rng.uniform(-2, 2, (70, 2))
    targets = 3.0 + 2.0 * np.sin(2 * new[:, 0]) + new[:, 1]
    found = gbcm.score(make_data("test.zarr", X=new, y=targets))
    mean, variance, _ = dense(gbcm, X, y, new)
    variance = variance + 0.05 * y.var()
    shape = error_distribution_of(gbcm.snapshot, gbcm.facts["method"]).shape  # of the residuals of 240 rows
    mnlp = np.mean(0.5 * np.log(variance) - shape.log_density((targets - mean) / np.sqrt(variance)))
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((mean - targets) ** 2)), abs=1e-9)
    assert found["mnlp"] == pytest.approx(mnlp, abs=1e-9)
    assert found["rmse"] < 0.5


def test_predictions_of_a_data_set_are_the_same(fitted, wave, tmp_path):
    import zarr

    gbcm, (path, X, _) = fitted[0], wave
    assert gbcm.predict_zarr(path, tmp_path / "out.zarr") == 240
    np.testing.assert_allclose(zarr.open_group(tmp_path / "out.zarr")["mean"][:], gbcm.predict(X)["mean"], rtol=1e-12)


def test_a_stored_model_is_the_same(fitted, expert, rng):
    gbcm, new = fitted[0], rng.uniform(-2, 2, (9, 2))
    again = GBCM.load(gbcm.url)
    shared = again.model.shared
    assert isinstance(shared, Weights)
    assert (shared.residual, shared.basis.name, again.facts["expert"]) == (RESIDUAL[expert], "toy_waves", expert)
    for name, value in gbcm.predict(new).items():
        np.testing.assert_array_equal(again.predict(new)[name], value)


@pytest.fixture
def prepared(wave, expert, tmp_path):
    """A committee that has absorbed nothing yet, and the path of its data."""
    return GBCM.prepare(wave[0], replace(REGRESSION, expert=expert), model=tmp_path / "prepared"), wave[0]


def test_hearing_a_source_is_fitting(prepared, fitted):
    gbcm, path = prepared
    absorbed, report = gbcm.ingest(gbcm.source(path))
    assert report.partitions == 5
    assert_same_committee(absorbed.committee, fitted[0].committee)
    assert_same_committee(absorbed.partial_fit(path).committee, fitted[0].committee)  # each once


def test_forgetting_is_never_having_heard(prepared, fitted, tmp_path):
    gbcm, path = fitted
    gone = [entry.key for entry in gbcm.ledger if "[50:" in entry.key or "[200:" in entry.key]
    assert len(gone) == 2
    after = gbcm.forget(gone)
    assert_same_committee(after.committee, only(*prepared, [0, 2, 3], tmp_path / "rest").committee)
    back = after.absorb(partitions(open_data(path), 50)).reweight({gone[0]: 2.0}).reweight({gone[0]: 1.0})
    assert_same_committee(back.committee, gbcm.committee)


def test_merging_is_hearing_both(prepared, fitted, tmp_path):
    one, other = only(*prepared, [0, 3], tmp_path / "one"), only(*prepared, [1, 2, 4], tmp_path / "other")
    assert_same_committee(one.merge(other, tmp_path / "both").committee, fitted[0].committee)


def test_different_bases_cannot_be_merged(prepared, fitted, tmp_path):
    gbcm, path = fitted
    other = GBCM.prepare(path, replace(REGRESSION, expert=gbcm.facts["expert"], seed=1), model=tmp_path / "other")
    with pytest.raises(ModelsDiffer, match="they differ in basis_frequencies"):
        gbcm.merge(other, tmp_path / "both")
    bcm = GBCM.prepare(path, REGRESSION, model=tmp_path / "bcm")
    with pytest.raises(ModelsDiffer, match="they differ in basis_frequencies, weight_scale, shared, residual, basis"):
        gbcm.merge(bcm, tmp_path / "both")
    with pytest.raises(ModelsDiffer, match=r"they differ in .*shared, residual"):
        bcm.merge(gbcm, tmp_path / "both")


def test_degrees_of_freedom_are_counted(fitted, wave):
    gbcm, (_, X, _) = fitted[0], wave
    V, rest = columns(gbcm, X)
    K = V @ V.T + np.diag(rest)
    found = gbcm.effective_parameters()
    assert found["data"] == pytest.approx(np.trace(K @ np.linalg.inv(K + 0.05 * np.eye(240))), abs=1e-8)


@pytest.mark.parametrize("rows", [240, 50])
def test_classes_are_those_of_the_dense_laplace_approximation(classes, expert, rng, rows):
    """In one pass where one expert absorbs all, else in the limit of the passes."""
    path, X, y = classes
    new = rng.uniform(-3, 3, (40, 2))
    gbcm = GBCM.fit(path, replace(CLASSES, expert=expert, rows_per_expert=rows, passes="1"))
    if rows < 240:
        gbcm = gbcm.refine(tolerance=1e-9)
        assert len(gbcm.info()["passes"]) > 2
    (V, rest), (Vs, rests) = columns(gbcm, X), columns(gbcm, new)
    K, prior = V @ V.T + np.diag(rest), (Vs**2).sum(axis=1) + rests
    obs = _observations(y)
    assert gbcm.model.likelihood.name == "bernoulli"
    mean, variance = laplace_prediction(K, Vs @ V.T, prior, Bernoulli(), obs)
    found = gbcm.predict(new)
    np.testing.assert_allclose(found["mean"], mean, atol=1e-6)
    np.testing.assert_allclose(found["variance"], variance, atol=1e-6)
    assert np.mean(found["label"] == (new[:, 1] > -2 * np.sin(2 * new[:, 0]))) > 0.6


def _observations(y):
    from bcmdist.data.observations import unweighted

    return unweighted(y.astype(float))


def test_classes_of_three_share_a_factor(make_data, expert, rng):
    X = rng.uniform(-2, 2, (150, 2))
    y = (X[:, 0] > -0.7) * 1 + (X[:, 1] > 0.5)
    path = make_data(X=X, y=y)
    gbcm = GBCM.fit(path, replace(CLASSES, expert=expert, set=GIVEN))
    assert gbcm.model.likelihood.name == "onehot"
    assert gbcm.score(path)["accuracy"] > 0.85


def test_classes_of_three_may_be_searched_together(make_data, expert, rng):
    """Without a matrix of a partition's rows."""
    X = rng.uniform(-2, 2, (150, 2))
    path = make_data(X=X, y=(X[:, 0] > -0.7) * 1 + (X[:, 1] > 0.5))
    gbcm = GBCM.fit(path, replace(CLASSES, expert=expert, likelihood="softmax"))
    assert gbcm.score(path)["accuracy"] > 0.85


@pytest.mark.slow
def test_hyperparameters_are_learned_as_for_bcm(wave, expert):
    path, *_ = wave
    learned = Settings(kernel="se", query=30, rows_per_expert=50, effort="quick")
    one, other = GBCM.prepare(path, replace(learned, expert=expert)), GBCM.prepare(path, learned)
    assert one.info()["hyperparameters"] == other.info()["hyperparameters"]


def test_the_running_belief_may_linearise(classes, expert):
    path, *_ = classes
    gbcm = GBCM.fit(path, replace(CLASSES, expert=expert, linearise="running"))
    assert gbcm.score(path)["accuracy"] > 0.8


REFUSED = [
    (
        {"partition": "spatial"},
        "expert: expected bcm or fourier with spatial partitions, .*; give --partition chunks",
    ),
    ({"approximation": "ep", "task": "classification"}, "approximation: expected .*; take --approximation laplace"),
    ({"objective": "committee", "learn": True, "set": {}}, "expected bcm with the objective committee, .*--objective"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_it_cannot_do_is_refused_at_once(expert, settings, message):
    with pytest.raises(InvalidOption, match=message):
        replace(REGRESSION, expert=expert, **settings)


def test_what_a_fitted_one_cannot_do_is_refused(fitted, tmp_path):
    gbcm, path = fitted
    for ask in (gbcm.evidence_gradient, gbcm.calibration):
        with pytest.raises(InvalidOption, match=r"model: expected values at query points .* fit with the expert bcm"):
            ask()
    with pytest.raises(InvalidOption, match="method: expected a model fitted with --partition spatial"):
        gbcm.predict(np.zeros((1, 2)), method="local")
    with pytest.raises(InvalidOption, match="hmc: expected the expert bcm, fitc or sor, whose evidence has a gradient"):
        sample_posterior(path, Settings(kernel="se", expert=gbcm.facts["expert"]), model=tmp_path / "chains")


def test_a_name_that_nobody_registered():
    with pytest.raises(InvalidOption, match=r"expert: expected one of bcm, fitc, sor, .*toy_waves, .*, got 'wavse'"):
        Settings(expert="wavse")
    with pytest.raises(InvalidOption, match="expert: expected a name of its own, 'bcm' is that of"):
        register_expert("bcm", weights_of(partial(draw, share=1.0)), residual="none")
    with pytest.raises(InvalidOption, match=r"residual: expected one of none, diagonal, block, .*got 'some'"):
        register_expert("toy_some", weights_of(partial(draw, share=1.0)), residual="some")


def test_shared_variables_carry_the_residual_of_their_expert(wave):
    def forgetful(known):
        return weights_of(partial(draw, share=1.0))(replace(known, residual="none"))

    register_expert("toy_forgetful", forgetful, residual="diagonal")
    with pytest.raises(InvalidOption, match=r"expected shared variables with the residual diagonal .*, got none"):
        GBCM.prepare(wave[0], replace(REGRESSION, expert="toy_forgetful"))


# --- A basis that cannot stand for the kernel ---

LEARNED = Settings(kernel="se", query=60, effort="quick")


def narrow(known):
    """Frequencies of a kernel twenty times as smooth."""
    basis, scale = draw(known, share=1.0)
    return Waves(0.05 * basis.frequencies), scale


def small(known):
    basis, scale = draw(known, share=1.0)
    return basis, 0.01 * scale


def zero(known):
    basis, scale = draw(known, share=1.0)
    return basis, np.where(np.arange(basis.functions) == 3, 0.0, scale)


@pytest.fixture
def of_basis(monkeypatch):
    """Adds an expert for one test."""
    monkeypatch.setattr(EXPERTS, "_things", dict(EXPERTS._things))
    return lambda basis: register_expert("toy_other", weights_of(basis), residual="none")


@pytest.mark.parametrize("basis", [narrow, small])
def test_a_basis_that_explains_less_than_the_learned_kernel_is_reported(of_basis, basis, wave):
    of_basis(basis)
    with pytest.warns(
        BcmdistWarning, match=r"expected 60 basis functions to explain the rows about as well as the ker"
    ):
        GBCM.prepare(wave[0], replace(LEARNED, expert="toy_other"))


def test_a_basis_of_the_learned_kernel_is_not(wave):
    """Warnings are errors here."""
    GBCM.prepare(wave[0], replace(LEARNED, expert="toy_waves"))


def test_gains_are_those_of_dense_evidence(rng):
    X, y = rng.standard_normal((40, 2)), rng.standard_normal((40, 1))
    noise, kernel = rng.uniform(0.1, 0.3, 40), make_kernel("se")
    sizes = {"rows": 40, "count": 8, "method": "kmeans", "seed": 0, "residual": "diagonal", "low": -X, "high": X}
    known = BasisInputs(X, y, noise, kernel=kernel, mean=Mean("constant"), **sizes)
    shared = weights_of(partial(draw, share=SHARE))(known)
    V, H = shared.design(X), known.mean.design(X)
    rest = kernel.diagonal(X) - (V[:, : shared.functions] ** 2).sum(axis=1)
    scatter = np.mean(y[:, 0] ** 2 / noise) * np.diag(noise)
    dense = [V @ V.T + np.diag(rest + noise), kernel.cross(X, X) + H @ H.T + np.diag(noise), scatter]
    ours, exact, constant = (multivariate_normal(np.zeros(40), K).logpdf(y[:, 0]) / 40 for K in dense)
    np.testing.assert_allclose(gains(shared, known), [ours - constant, exact - constant], atol=1e-10)


def test_a_basis_with_a_scale_of_zero_is_refused_before_anything_is_committed(of_basis, wave, tmp_path):
    of_basis(zero)
    with pytest.raises(
        InvalidOption, match=r"basis toy_waves, scale of the weights: expected .* got \[0.\]; leave out"
    ):
        GBCM.fit(wave[0], replace(REGRESSION, expert="toy_other"), model=tmp_path / "model")
    assert open_store(tmp_path / "model").head() == 0


def without(arrays, facts, name):
    return {n: a for n, a in arrays.items() if n != name}, facts


DAMAGES = [
    (lambda a, f: without(a, f, "weight_scale"), "expected an array weight_scale, found none"),
    (lambda a, f: without(a, f, "basis_frequencies"), "expected the arrays of the basis toy_waves"),
    (lambda a, f: (a | {"weight_scale": a["weight_scale"][:3]}, f), "a basis of 2 inputs and a scale for each"),
    (lambda a, f: (a | {"basis_frequencies": np.full((15, 2), np.nan)}, f), "basis_frequencies"),
    (lambda a, f: (a, f | {"basis": 3}), "basis"),
]


@pytest.mark.parametrize(("change", "message"), DAMAGES)
def test_a_model_that_cannot_be_is_refused(prepared, change, message):
    from bcmdist.model.loading import sound_model

    arrays, facts = change(*prepared[0].model.to_arrays())
    with pytest.raises(ModelDamaged, match=message):
        sound_model(arrays, json.loads(json.dumps(facts)), "here")


@pytest.mark.parametrize(("field", "message"), [("shared", "kind of shared variables"), ("basis", "basis")])
def test_a_model_of_a_package_that_is_not_there(prepared, field, message):
    from bcmdist.model.loading import sound_model

    arrays, facts = prepared[0].model.to_arrays()
    with pytest.raises(InvalidOption, match=f"{message}: expected one of .*, got 'lost'.*install the package"):
        sound_model(arrays, json.loads(json.dumps(facts | {field: "lost"})), "here")
