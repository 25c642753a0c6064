"""Query points where predictions will be wanted: their places are refused early, sampled, scaled, and made use of."""

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.api.carry_out import check
from bcmdist.api.requests import FitRequest, located
from bcmdist.data.dataset import open_data
from bcmdist.data.schema import Schema
from bcmdist.data.writing import write_dataset
from bcmdist.errors import DataNotFound, InvalidData, InvalidOption, ModelExists
from bcmdist.learning import prediction_inputs
from bcmdist.learning.prediction_inputs import Inputs, SampleInputs, prediction_partitions, read_prediction_inputs
from bcmdist.learning.query_selection import select_points
from problems import make_kernel

QUICK = {"learn": False, "kernel": "se", "rows_per_expert": 60}


@pytest.fixture
def inputs(make_data, rng):
    """Rows of five inputs; and a function that writes more inputs, without targets."""
    X = rng.standard_normal((400, 5))
    path = make_data(X=X, y=X[:, 0] + 0.1 * rng.standard_normal(400))
    return path, lambda name, places, **columns: make_data(name, X=places, **columns)


def asked(url, **given):
    return Settings(**QUICK, query_from=url, **given)


# --- What is refused, before work begins ---


class Unwilling(SerialRuntime):
    """A runtime in which nothing may run."""

    def sum(self, task, parts, *, label):
        raise AssertionError(label)


def test_what_is_no_place_is_refused_before_work_begins(inputs, tmp_path, rng):
    path, write = inputs
    empty = tmp_path / "empty"
    empty.mkdir()
    for url, error, said in [
        (str(tmp_path / "none.zarr"), DataNotFound, "none.zarr"),
        (write("other.zarr", rng.standard_normal((5, 3))), InvalidData, "expected the 5 columns of X in .*, got 3"),
        (write("no.zarr", np.zeros((0, 5))), InvalidData, "expected at least one row"),
        (str(empty), InvalidData, "expected rows at which predictions will be needed, found none"),
        ("redis://localhost/stream", InvalidOption, "expected a Zarr data set or a directory of them, got the stream"),
    ]:
        with pytest.raises(error, match=said):
            check(FitRequest(path, str(tmp_path / "model"), asked(url)))
        with pytest.raises(error, match=said):
            GBCM.fit(path, asked(url), model=tmp_path / "model", runtime=Unwilling())
    assert not (tmp_path / "model").exists() or not list((tmp_path / "model").iterdir())


def test_other_methods_of_choosing_are_refused():
    for method in ("random", "pivoted", "evidence", "sggp"):
        with pytest.raises(InvalidOption, match=f"query_from: expected query_method kmeans or .*, got {method}, wh"):
            asked("d.zarr", query_method=method)
    with pytest.raises(InvalidOption, match="expected kmeans or optimised with places, got 'random'"):
        select_points(np.eye(3), 2, kernel=make_kernel("se", 3), method="random", places=np.ones((1, 3)))


def test_columns_are_taken_by_name(tmp_path, rng):
    X, new = rng.standard_normal((50, 2)), rng.standard_normal((20, 3))
    write_dataset(tmp_path / "data.zarr", {"X": X, "y": X[:, 0]}, schema=Schema(("a", "b")))
    write_dataset(tmp_path / "new.zarr", {"X": new}, schema=Schema(("b", "c", "a")))
    data = open_data(str(tmp_path / "data.zarr"))
    with pytest.warns(match="'c' not used"):
        found = read_prediction_inputs(asked(str(tmp_path / "new.zarr")), data, 100, SerialRuntime())
    assert {tuple(row) for row in found} == {tuple(row) for row in new[:, [2, 0]]}
    write_dataset(tmp_path / "less.zarr", {"X": new}, schema=Schema(("b", "c", "d")))
    with pytest.raises(InvalidData, match="expected the inputs of training, 'a' is not there"):
        prediction_partitions(asked(str(tmp_path / "less.zarr")), data)


# --- What is read ---


def test_a_sample_is_the_same_in_any_order_and_bounded(inputs, rng, monkeypatch):
    path, write = inputs
    new = rng.standard_normal((500, 5))
    settings, data = asked(write("new.zarr", new, y=np.zeros(500))), open_data(path)
    parts = prediction_partitions(settings, data)
    assert sum(part.rows for part in parts) == 500
    assert all(part.data.y is None and not part.data.companions for part in parts)
    found = read_prediction_inputs(settings, data, 40, SerialRuntime())
    assert found.shape == (40, 5)
    assert {tuple(row) for row in found} <= {tuple(row) for row in new}
    task = SampleInputs(settings.seed, 40)
    backwards = SerialRuntime().sum(task, parts[::-1], label="")
    assert isinstance(backwards, Inputs)
    np.testing.assert_array_equal(found, backwards.X)
    monkeypatch.setattr(prediction_inputs, "MOST_READ", 3)
    assert len(prediction_partitions(settings, data)) == 3


def test_a_directory_of_data_sets_is_read(inputs, tmp_path, rng):
    path, _ = inputs
    new = rng.standard_normal((60, 5))
    for k in range(3):
        write_dataset(tmp_path / "many" / f"{k}.zarr", {"X": new[20 * k : 20 * k + 20]})
    found = read_prediction_inputs(asked(str(tmp_path / "many")), open_data(path), 100, SerialRuntime())
    assert {tuple(row) for row in found} == {tuple(row) for row in new}


def test_serial_and_dask_choose_alike(inputs, rng, cluster):
    path, write = inputs
    settings = asked(write("new.zarr", rng.standard_normal((300, 5))), query=40)
    serial, dask = (GBCM.prepare(path, settings, runtime=runtime) for runtime in (None, cluster))
    np.testing.assert_allclose(serial.model.query.points, dask.model.query.points, rtol=1e-12)


# --- What comes of it ---


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_half_of_the_points_go_where_predictions_are_wanted(inputs, rng, partition):
    """In five inputs, far from all rows, in units of training; and predictions there get surer."""
    path, write = inputs
    new = 6.0 + 0.5 * rng.standard_normal((200, 5))
    plain = GBCM.fit(path, Settings(**QUICK, query=40, partition=partition))
    found = GBCM.fit(path, asked(write("new.zarr", new), query=40, partition=partition))
    points = found.model.query.points * found.model.scaling.x_scale + found.model.scaling.x_mean
    far = np.linalg.norm(points - 6.0, axis=1) < 5.0
    assert 10 <= far.sum() <= 30
    of_plain = plain.model.query.points * plain.model.scaling.x_scale + plain.model.scaling.x_mean
    assert not np.any(np.linalg.norm(of_plain - 6.0, axis=1) < 5.0)


def test_few_places_are_all_taken_with_as_many_points_as_rows(inputs, rng):
    path, write = inputs
    new = rng.standard_normal((7, 5))
    found = GBCM.prepare(path, asked(write("new.zarr", new), query=500)).model
    assert found.query.functions == 407
    points = {tuple(p) for p in found.query.points}
    assert {tuple(p) for p in found.scaling.inputs(new)} <= points


def test_another_place_is_another_fit(inputs, rng, tmp_path, monkeypatch):
    """And the same one is known by a relative path too; one without stays what it was."""
    path, write = inputs
    first, second = (write(f"{k}.zarr", rng.standard_normal((30, 5))) for k in range(2))
    model = tmp_path / "model"
    GBCM.fit(path, asked(first, query=20), model=model)
    monkeypatch.chdir(tmp_path)
    assert GBCM.fit(path, asked("0.zarr", query=20), model=model).commit > 1
    for other in (asked(second, query=20), Settings(**QUICK, query=20)):
        with pytest.raises(ModelExists):
            GBCM.fit(path, other, model=model)


def test_a_job_is_given_the_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    moved = located(FitRequest("d", "m", asked("new.zarr")))
    assert moved.settings.query_from == f"{tmp_path}/new.zarr"
    assert moved.settings.seed == 0
    assert located(FitRequest("d", "m")).settings.query_from is None
