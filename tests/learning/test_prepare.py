"""Learning from a data set to hyper-parameters: resumed, cleaned up, refused, and with other objectives."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.writing import write_dataset
from bcmdist.errors import BcmdistWarning, InvalidOption, MemoryLimit, ModelExists, NotPositiveDefinite
from bcmdist.learning import cross_validation, evidence_refinement, search
from bcmdist.learning.evidence.committee_tasks import TrialGradient, TrialGradients
from bcmdist.learning.evidence.local_tasks import LocalEvidence, LocalLeaveOneOut
from bcmdist.learning.point import Point, prior_center, theta_of
from bcmdist.model.likelihoods import Gaussian, OneHot
from bcmdist.model.scaling import scaling_to_array
from bcmdist.runtime import memory
from bcmdist.storage.commits import SCRATCH, open_store

pytestmark = pytest.mark.usefixtures("unlimited_learning")
SETTINGS = Settings(kernel="se", query=20, rows_per_expert=60, effort="quick")
SPATIAL = replace(SETTINGS, partition="spatial")


class Killed(BaseException):
    """Stands for a lost machine."""


class Counting(SerialRuntime):
    """Counts evaluations of an evidence, and dies after some."""

    def __init__(self, lives=10_000, **options):
        super().__init__(**options)
        self.lives, self.evaluations = lives, 0

    def sum(self, task, parts, *, label):
        if isinstance(task, LocalEvidence | TrialGradient | TrialGradients):
            if self.evaluations == self.lives:
                raise Killed
            self.evaluations += 1
        return super().sum(task, parts, label=label)


def prepared(path, settings, model, lives=10_000):
    runtime = Counting(lives)
    return GBCM.prepare(path, settings, model=model, runtime=runtime), runtime.evaluations


def killed(path, settings, model, lives):
    with pytest.raises(Killed):
        prepared(path, settings, model, lives)


def assert_same_model(a, b):
    np.testing.assert_array_equal(a.model.shared.kernel.theta, b.model.shared.kernel.theta)
    np.testing.assert_array_equal(a.model.shared.points, b.model.shared.points)
    for name, value in a.model.likelihood.parameters.items():
        np.testing.assert_array_equal(value, b.model.likelihood.parameters[name])
    for fact in ("kernels_tried", "at_bounds", "settled", "evaluations"):
        assert a.facts[fact] == b.facts[fact]


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        SPATIAL,
        replace(SETTINGS, objective="subset"),
        replace(SETTINGS, objective="committee"),
        replace(SETTINGS, objective="committee", query_method="hpev-sgev"),
        replace(SETTINGS, objective="committee", query_method="hpev-sggp", expert="sor"),
    ],
    ids=["chunks", "spatial", "subset", "committee", "hpev", "hpev sor"],
)
@pytest.mark.slow
def test_a_killed_preparation_resumes_where_it_was(wave, tmp_path, settings):
    """Every evaluation is made once over all runs, and the hyper-parameters are the same bit for bit."""
    path, *_ = wave
    whole, evaluations = prepared(path, settings, tmp_path / "whole")
    assert evaluations > 15
    model = tmp_path / "model"
    killed(path, settings, model, 7)
    assert (model / SCRATCH).exists()
    killed(path, settings, model, evaluations - 7 - 2)
    found, missing = prepared(path, settings, model)
    assert missing == 2
    assert_same_model(found, whole)
    assert not (model / SCRATCH).exists()


@pytest.mark.slow
def test_another_job_takes_up_nothing(wave, tmp_path):
    path, *_ = wave
    model = tmp_path / "model"
    killed(path, SPATIAL, model, 9)
    other = replace(SPATIAL, seed=1)
    whole, evaluations = prepared(path, other, tmp_path / "whole")
    found, computed = prepared(path, other, model)
    assert computed == evaluations
    assert_same_model(found, whole)
    assert not (model / SCRATCH).exists()  # not that of the other job either


@pytest.mark.slow
def test_other_rows_take_up_nothing(wave, tmp_path):
    _, X, y = wave
    data, model = str(tmp_path / "rows.zarr"), tmp_path / "model"
    write_dataset(data, {"X": X, "y": y}, rows_per_chunk=60)
    killed(data, SPATIAL, model, 9)
    (tmp_path / "rows.zarr").rename(tmp_path / "old.zarr")
    turned = np.r_[1:60, 0, 60:240]  # the same moments: the scaling may not tell
    write_dataset(data, {"X": X, "y": y[turned]}, rows_per_chunk=60)
    whole, evaluations = prepared(data, SPATIAL, tmp_path / "whole")
    found, computed = prepared(data, SPATIAL, model)
    assert computed == evaluations
    assert_same_model(found, whole)


@pytest.mark.parametrize("settings", [SETTINGS, SPATIAL], ids=["chunks", "spatial"])
def test_nothing_is_left_where_learning_fails(wave, tmp_path, monkeypatch, settings):
    path, *_ = wave

    def fail(*_):
        raise NotPositiveDefinite("not today")

    monkeypatch.setattr("bcmdist.learning.evidence.local_tasks.LocalEvidence.of_rows", staticmethod(fail))
    with pytest.raises(
        NotPositiveDefinite, match=r"learning: expected a finite evidence of se .* last failure: .*not today"
    ):
        GBCM.prepare(path, settings, model=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_learning_that_would_not_fit_is_refused_before_it_begins(wave, tmp_path):
    path, *_ = wave
    settings = replace(SPATIAL, rows_per_expert=20)  # experts fit; the neighbourhoods of learning do not
    need = memory.evidence_bytes(240, 2, kernels=1, laplace=False)
    runtime = Counting(lives=0, allowed_bytes=memory.BASE_BYTES + 0.9 * need)
    with pytest.raises(MemoryLimit, match=r"learning: .*lower --rows-per-expert or --effort"):
        GBCM.prepare(path, settings, model=tmp_path / "model", runtime=runtime)
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
@pytest.mark.parametrize("y", ["numbers", "classes", "counts"])
def test_many_inputs_are_accepted_where_a_linear_mean_would_not_fit(make_data, rng, y):
    """Of 3000 inputs the weights of a trend would be most of the shared variables; of classes there is none."""
    X = rng.standard_normal((40, 3000))
    targets = {"numbers": X[:, 0] + X[:, 1], "classes": np.arange(40) % 3, "counts": np.arange(40) % 7}[y]
    path = make_data("wide.zarr", X=X, y=targets.astype(float))
    runtime = SerialRuntime(allowed_bytes=memory.BASE_BYTES + 9e8)
    given = {"kernel": "se-iso", "query": 10, "rows_per_expert": 20, "effort": "quick"}
    given["task"] = {"numbers": "regression", "classes": "classification", "counts": "counts"}[y]
    gbcm = GBCM.prepare(path, Settings(**given), runtime=runtime)
    assert gbcm.model.shared.mean.name == "constant"
    assert "mean" not in [decision["of"] for decision in gbcm.info()["decisions"]]
    with pytest.raises(MemoryLimit, match="about 3011 shared variables"):
        GBCM.prepare(path, Settings(**given, mean="linear"), runtime=runtime)


@pytest.fixture
def counts(make_data, rng):
    X = rng.uniform(-2, 2, (240, 2))
    return make_data("counts.zarr", X=X, y=rng.poisson(np.exp(1.0 + np.sin(2 * X[:, 0]))))


@pytest.mark.parametrize("task", ["regression", pytest.param("counts", marks=pytest.mark.slow)])
def test_polishing_raises_the_evidence_of_the_committee(wave, counts, task):
    """About the same query points."""
    path = wave[0] if task == "regression" else counts
    settings = replace(SETTINGS, task=task, query=12, passes="auto" if task == "counts" else "1")
    local, committee = (GBCM.fit(path, replace(settings, objective=name)) for name in ("local", "committee"))
    np.testing.assert_array_equal(local.model.query.points, committee.model.query.points)
    assert committee.committee.log_evidence > local.committee.log_evidence + 0.1
    assert committee.facts["evaluations"] > local.facts["evaluations"]


@pytest.mark.slow
def test_points_that_were_moved_raise_it_further(wave):
    settings = replace(SETTINGS, query=12, objective="committee")
    moved = GBCM.fit(wave[0], replace(settings, query_method="optimised"))
    still = GBCM.fit(wave[0], settings)
    assert np.abs(moved.model.query.points - still.model.query.points).max() > 1e-3
    assert moved.committee.log_evidence > still.committee.log_evidence + 0.1


def test_the_committee_that_was_polished_is_the_one_that_is_fitted(wave, monkeypatch):
    """Its evidence is what was climbed, less the prior of the hyper-parameters, which is at most one."""
    polished = []
    original = evidence_refinement.polish

    def kept(*args, **options):
        polished.append(original(*args, **options))
        return polished[-1]

    monkeypatch.setattr(evidence_refinement, "polish", kept)
    gbcm = GBCM.fit(wave[0], replace(SETTINGS, query=12, objective="committee"))
    (learned,) = polished
    point = Point("se", learned.kernel, learned.likelihood, 0.0)
    gap = (theta_of(point) - prior_center(point, 2)) / search.PRIOR_SD
    assert gbcm.committee.log_evidence - 0.5 * gap @ gap == pytest.approx(learned.objective, rel=1e-9)


@pytest.mark.slow
def test_a_subset_learns_from_all_rows_at_once(wave, tmp_path):
    """There are fewer rows than effort allows: the evidence is that of the exact Gaussian process."""
    path, *_ = wave
    subset = GBCM.prepare(path, replace(SETTINGS, objective="subset"), model=tmp_path / "subset")
    whole = GBCM.prepare(path, replace(SETTINGS, rows_per_expert=240), model=tmp_path / "whole")
    for name, value in subset.info()["hyperparameters"].items():
        np.testing.assert_allclose(value, whole.info()["hyperparameters"][name], rtol=1e-6)  # the order of rows
    spatial = GBCM.prepare(path, replace(SPATIAL, objective="subset"))
    np.testing.assert_array_equal(spatial.model.query.kernel.theta, subset.model.query.kernel.theta)
    few = GBCM.prepare(path, replace(SETTINGS, objective="subset", seed=1))
    np.testing.assert_allclose(few.model.query.kernel.theta, subset.model.query.kernel.theta, rtol=1e-5)


def test_a_subset_is_drawn_from_all_rows(make_data, rng, monkeypatch):
    """Of at most as many rows as the effort allows, with their companions."""
    import bcmdist.learning.prepare as module

    monkeypatch.setitem(module.EFFORTS, "quick", replace(module.EFFORTS["quick"], rows=50))
    seen, original = [], module.SampleBlocks

    def kept(X, obs, *args, size):
        seen.append((X, obs))
        assert size == len(X)
        return original(X, obs, *args, size=size)

    monkeypatch.setattr(module, "SampleBlocks", kept)
    X = np.column_stack([np.arange(300.0), rng.standard_normal(300)])
    path = make_data("weighted.zarr", X=X, y=np.sin(X[:, 1]), weight=1.0 + np.arange(300.0))
    GBCM.prepare(path, replace(SETTINGS, objective="subset"))
    ((rows, obs),) = seen
    assert rows.shape == (50, 2)
    assert 100 < rows[:, 0].mean() < 200
    assert rows[:, 0].min() < 60 < 240 < rows[:, 0].max()
    np.testing.assert_array_equal(obs.weight, 1.0 + rows[:, 0])


@pytest.mark.slow
def test_rows_left_out_are_learned_from(wave, tmp_path):
    """What predicts each row best from all others is not what has the highest evidence; so, too, in neighbourhoods."""
    path, *_ = wave
    asked = replace(SETTINGS, kernel="se-iso", mean="constant", rows_per_expert=240)
    by_rows, by_evidence = (GBCM.prepare(path, replace(asked, objective=one)) for one in ("leave-one-out", "local"))
    parts = partitions(open_data(path), 240)

    def left_out(model):
        with open_store(str(tmp_path / "other")).transient({"scaling": scaling_to_array(model.scaling)}) as references:
            task = LocalLeaveOneOut(references["scaling"], model.query.kernel, "constant", model.likelihood, None)
            return SerialRuntime().sum(task, parts, label="learn").value

    assert left_out(by_rows.model) > left_out(by_evidence.model)
    cells = [
        GBCM.prepare(path, replace(asked, partition="spatial", objective=one)) for one in ("leave-one-out", "local")
    ]
    assert np.any(cells[0].model.query.kernel.theta != cells[1].model.query.kernel.theta)


def test_rows_left_out_need_a_log_density(make_data, rng):
    path = make_data("classes.zarr", X=rng.standard_normal((60, 2)), y=np.arange(60.0) % 2)
    with pytest.raises(InvalidOption, match="subset with the likelihood bernoulli, got leave-one-out"):
        GBCM.fit(path, replace(SETTINGS, objective="leave-one-out"))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["committee", "leave-one-out", "subset"])
def test_objectives_are_the_same_on_both_runtimes(wave, cluster, objective):
    path, *_ = wave
    settings = replace(SETTINGS, kernel="se-iso", objective=objective)
    a, b = (GBCM.prepare(path, settings, runtime=runtime).info() for runtime in (SerialRuntime(), cluster))
    for name, value in a["hyperparameters"].items():
        np.testing.assert_allclose(value, b["hyperparameters"][name], rtol=1e-4)  # optimiser tolerance


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "other"}, "objective: expected one of local, leave-one-out, committee, subset, got"),
        ({"objective": "subset", "learn": False}, "objective: expected local with --no-learn, got subset"),
        ({"objective": "committee", "partition": "spatial"}, "objective: expected local or subset with spatial cells"),
        ({"objective": "committee", "likelihood": "softmax"}, "objective: expected local or subset with softmax"),
        (
            {"objective": "leave-one-out", "likelihood": "student_t"},
            "objective: expected local, committee or subset with the likelihood student_t, got leave-one-out",
        ),
        ({"query_method": "optimised"}, "query_method: expected objective committee with optimised, got local; give"),
        (
            {"query_method": "hpev-sgev"},
            "committee with hpev-sgev, got local; give --objective committee, or --query-method evidence",
        ),
        ({"query_method": "hpev-sggp", "objective": "subset"}, "got subset; give .* or --query-method sggp"),
    ],
)
def test_objectives_that_do_not_go_with_other_options_are_refused(changes, message):
    with pytest.raises(InvalidOption, match=message):
        Settings(**changes)


def test_a_committee_of_classes_is_refused_before_learning(make_data, rng, tmp_path):
    X = rng.standard_normal((90, 2))
    path = make_data("three.zarr", X=X, y=np.arange(90) % 3)
    settings = replace(SETTINGS, task="classification", objective="committee")
    with pytest.raises(InvalidOption, match="objective: expected local or subset with onehot, got committee"):
        GBCM.prepare(path, settings, model=tmp_path / "model", runtime=Counting(lives=0))
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(("rows", "likelihood"), [(20, Gaussian()), (10_000, Gaussian()), (10_000, OneHot(3))])
def test_rows_are_judged_among_so_many_others(rows, likelihood):
    near = SimpleNamespace(data=SimpleNamespace(rows=rows))
    found = cross_validation.ValidationData(near, None, SerialRuntime(), None, likelihood).sizes
    if rows > found.rows:
        assert found == (cross_validation.JUDGED_LABELS if likelihood.on_labels else cross_validation.JUDGED)
        assert 1 <= found.central < found.rows
    else:  # each row once
        assert (found.rows, found.count, found.central) == (rows, 1, rows)


@pytest.mark.parametrize("rows_per_chunk", [10, 60])
def test_lifetimes_of_zero_are_told(make_data, rng, rows_per_chunk):
    y = rng.exponential(1.0, 60)
    y[[17, 23, 48]] = 0.0
    path = make_data(X=rng.uniform(-2, 2, (60, 2)), y=y, rows_per_chunk=rows_per_chunk)
    settings = Settings(task="lifetimes", kernel="se", query=10, rows_per_expert=10, learn=False)
    said = (
        "data.zarr: 3 lifetimes in y are 0, the first at row 17: they count as 0.0001 of the mean one, as below the "
        "unit of a clock; correct them where they mean something else"
    )
    with pytest.warns(BcmdistWarning, match=said):
        GBCM.fit(path, settings)
    GBCM.fit(path, replace(settings, task="regression"))  # where 0 is a number like others


HOLE = replace(SPATIAL, kernel="auto", query=40)


def with_a_hole(rng, slope, rows=500):
    """Rows (n, 2) around a hole, and targets of short waves about a plane."""
    X = rng.uniform(-1, 1, (2 * rows, 2))
    X = X[np.linalg.norm(X - 0.2, axis=1) > 0.5][:rows]
    waves = np.sin(9.0 * X[:, 0]) * np.cos(8.0 * X[:, 1])
    return X, X @ [slope, -slope] + waves + 0.1 * rng.standard_normal(rows)


@pytest.mark.slow
@pytest.mark.parametrize(("slope", "mean"), [(6.0, "linear"), (0.0, "constant")])
def test_the_mean_is_linear_where_there_is_a_trend(make_data, tmp_path, rng, slope, mean):
    X, y = with_a_hole(rng, slope)
    path = make_data("hole.zarr", X=X, y=y)
    gbcm = GBCM.prepare(path, replace(SPATIAL, query=40), model=tmp_path / "model", runtime=SerialRuntime())
    assert gbcm.model.shared.mean.name == mean
    (decision,) = (one for one in gbcm.info()["decisions"] if one["of"] == "mean")
    (margin,) = decision["over"].values()
    assert (decision["taken"], decision["judge"]) == (mean, "rows left out")
    assert {mean, *decision["over"]} == {"constant", "linear"}
    assert margin["error"] > 0.0
    assert margin["nats"] > (0.0 if mean == "linear" else -max(margin["error"], cross_validation.DECISIVE_NATS))


@pytest.mark.slow
@pytest.mark.parametrize(("slope", "mean"), [(6.0, "linear"), (0.0, "constant")])
def test_the_evidence_decides_the_mean_of_rows_as_they_are_stored(make_data, tmp_path, rng, slope, mean):
    X, y = with_a_hole(rng, slope)
    settings = replace(SETTINGS, rows_per_expert=500)
    gbcm = GBCM.prepare(make_data("plane.zarr", X=X, y=y), settings, model=tmp_path / "model", runtime=SerialRuntime())
    assert gbcm.model.shared.mean.name == mean
    (decision,) = gbcm.info()["decisions"]
    assert (decision["of"], decision["taken"], decision["judge"]) == ("mean", mean, "evidence")
    assert min(margin["nats"] for margin in decision["over"].values()) >= 0.0


@pytest.mark.slow
def test_decisions_are_those_of_what_was_taken(make_data, tmp_path, rng):
    X, y = with_a_hole(rng, 1.0)
    model = tmp_path / "model"
    gbcm = GBCM.prepare(make_data("hole.zarr", X=X, y=y), HOLE, model=model, runtime=SerialRuntime())
    figures = gbcm.info()
    decided = {decision["of"]: decision for decision in figures["decisions"]}
    assert decided["mean"]["taken"] == figures["mean"]
    assert decided["kernel"]["taken"] == figures["kernel"]
    assert figures["kernel"] not in decided["kernel"]["over"]
    assert decided["kernel"]["over"].keys() < figures["kernels_tried"].keys()
    shared = figures["shared_lengthscales"] == {"kernel.lengthscale": 2}
    assert shared == (np.ptp(figures["hyperparameters"]["kernel.lengthscale"]) == 0.0)
    assert shared == (decided.get("lengthscales", {}).get("taken") == "one for all inputs")
    assert GBCM.load(model).info()["decisions"] == figures["decisions"]


def test_a_mean_that_was_asked_for_is_not_decided(wave, tmp_path):
    for k, settings in enumerate((replace(SETTINGS, mean="zero"), replace(SETTINGS, learn=False))):
        gbcm, _ = prepared(wave[0], settings, tmp_path / f"{k}")
        assert gbcm.model.shared.mean.name == ("zero", "constant")[k]
        assert gbcm.info()["decisions"] == []


@pytest.mark.slow
def test_a_fit_with_another_mean_is_another_fit(wave, tmp_path):
    prepared(wave[0], replace(SETTINGS, mean="constant"), tmp_path / "now")
    with pytest.raises(ModelExists, match="other data or settings"):
        prepared(wave[0], SETTINGS, tmp_path / "now")
