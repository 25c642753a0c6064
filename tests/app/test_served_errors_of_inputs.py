"""Uncertain inputs over HTTP: the same averages as the facade's, in JSON and Arrow, and what is none is refused."""

from typing import get_args

import numpy as np
import pytest
from services import asked, fitted

from bcmdist import GBCM, Mixture, Settings
from bcmdist.app.service.bodies import Way
from bcmdist.app.service.limits import Limits
from bcmdist.app.service.loaded import Loaded
from bcmdist.data.arrow import MEDIA_TYPE, write_table
from bcmdist.prediction.uncertain.input_uncertainty import DRAWS, WAYS

RNG = np.random.default_rng(8)
X = RNG.uniform(-2, 2, (5, 2))
VARIANCE = np.tile([0.04, 0.09], (5, 1))
COVARIANCE = np.tile([[0.04, 0.03], [0.03, 0.09]], (5, 1, 1))
URL = "/models/wave/predict"
# The same numbers through JSON, whose digits give each of them back, computed by the same calls.
SAME = {"rtol": 1e-14, "atol": 0.0}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fitted(folder)
    fitted(folder, "kinds", task="classification")
    fitted(folder, "cells", partition="spatial")
    return folder


def body(variance, **more):
    return {"X": X.tolist(), "X_variance": np.asarray(variance).tolist(), **more}


def assert_says(answer, expected):
    assert answer.status_code == 200, answer.text
    for name, values in expected.items():
        np.testing.assert_allclose(answer.json()["predictions"][name], values, **SAME)


@pytest.mark.parametrize("variance", [VARIANCE, COVARIANCE], ids=["variances", "covariances"])
@pytest.mark.parametrize("way", [None, *WAYS])
@pytest.mark.parametrize("name", ["wave", "kinds"])
def test_averages_are_those_of_the_model(models, name, way, variance):
    expected = GBCM.load(models / name).predict(X, X_variance=variance, inputs=way)
    with asked(models) as client:
        answer = client.post(f"/models/{name}/predict", json=body(variance, inputs=way))
    assert_says(answer, expected)
    assert np.all(expected["variance"] > GBCM.load(models / name).predict(X)["variance"])


def test_local_experts_average_over_draws(models):
    gbcm = GBCM.load(models / "cells")
    with asked(models) as client:
        answer = client.post("/models/cells/predict", json=body(VARIANCE))
        closed = client.post("/models/cells/predict", json=body(VARIANCE, inputs="exact"))
        committee = client.post("/models/cells/predict", json=body(VARIANCE, inputs="exact", method="committee"))
    assert_says(answer, gbcm.predict(X, X_variance=VARIANCE))
    assert closed.status_code == 422
    assert "expected predictions of the committee alone for exact averages" in closed.json()["message"]
    assert_says(committee, gbcm.predict(X, X_variance=VARIANCE, inputs="exact", method="committee"))


def test_mixtures_average_over_them(models):
    mixture = Mixture([GBCM.load(models / "wave")] * 2)
    how = {"X_variance": VARIANCE, "inputs": "taylor"}
    method, said = Loaded(mixture).predict(X, method=None, quantiles=(0.9,), **how)
    assert method == "committee"
    for name, values in mixture.predict(X, quantiles=(0.9,), **how).items():
        np.testing.assert_array_equal(said[name], values)


def test_columns_in_another_order_take_their_errors_along(tmp_path):
    pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
    frame = pd.DataFrame(RNG.uniform(-2, 2, (60, 2)), columns=["depth", "north"])
    gbcm = GBCM.fit(
        (frame, frame.depth**2),
        Settings(partition="chunks", query=10, learn=False, kernel="se"),
        model=tmp_path / "wave",
    )
    names = ["north", "more", "depth"]
    told = np.column_stack([X[:, 1], np.zeros(5), X[:, 0]])
    errors = np.zeros((5, 3, 3))
    errors[:, ::2, ::2] = COVARIANCE[:, ::-1, ::-1]
    with asked(tmp_path) as client:
        both = {"X": told.tolist(), "columns": names, "inputs": "exact"}
        full = client.post(URL, json=both | {"X_variance": errors.tolist()})
        diagonal = client.post(URL, json=both | {"X_variance": np.einsum("nii->ni", errors).tolist()})
        narrow = client.post(URL, json=both | {"X_variance": COVARIANCE.tolist()})
    assert_says(full, gbcm.predict(X, X_variance=COVARIANCE, inputs="exact"))
    assert_says(diagonal, gbcm.predict(X, X_variance=VARIANCE, inputs="exact"))
    assert narrow.status_code == 422
    assert "X_variance: expected shape (5, 3)" in narrow.json()["message"]


BAD = {
    "few": ({"X_variance": VARIANCE[:4].tolist()}, "X_variance: expected shape (5, 2), a variance for each input, or"),
    "narrow": ({"X_variance": VARIANCE[:, :1].tolist()}, "X_variance: expected shape (5, 2)"),
    "ragged": ({"X_variance": [[0.1], *VARIANCE[1:].tolist()]}, "X_variance: expected 2 variances, or 2 times 2"),
    "negative": ({"X_variance": (-VARIANCE).tolist()}, "at least 0, or covariances that are symmetric"),
    "indefinite": ({"X_variance": np.tile([[1.0, 2.0], [2.0, 1.0]], (5, 1, 1)).tolist()}, "positive semi-definite"),
    "numbers": ({"X_variance": 0.1}, "body.X_variance.variances: Input should be a valid list"),
    "flat": ({"X_variance": [0.1] * 5}, "body.X_variance.variances.0: Input should be a valid list"),
    "text": ({"X_variance": [["secret", 0.1]]}, "body.X_variance.variances.0.0: Input should be a valid number"),
    "deep text": ({"X_variance": [[["secret"]]]}, "body.X_variance.covariances.0.0.0: Input should be a valid number"),
    "empty": ({"X_variance": []}, "body.X_variance.variances: List should have at least 1 item"),
    "no errors": ({"inputs": "exact"}, "inputs: expected X_variance with 'exact', got none"),
    "another way": ({"X_variance": VARIANCE.tolist(), "inputs": "other"}, "Input should be 'exact', 'taylor' or"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_none_is_refused(models, case):
    change, text = BAD[case]
    with asked(models) as client:
        answer = client.post(URL, json={"X": X.tolist(), **change})
    assert answer.status_code == 422, answer.text
    assert text in answer.json()["message"]
    assert "secret" not in answer.text


def test_variances_are_finite(models):
    with asked(models) as client:
        odd = b'{"X": [[0.0, 1.0]], "X_variance": [[NaN, 1.0]]}'
        answer = client.post(URL, content=odd, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (422, "InvalidRequest")


def test_a_point_counts_as_its_draws(models):
    """Of rows in a request; exact ones are as many as before."""
    with asked(models, limits=Limits(rows=4 * DRAWS + 1)) as client:
        many = client.post(URL, json=body(VARIANCE, inputs="taylor"))
        four = client.post(URL, json={name: rows[:4] for name, rows in body(VARIANCE).items()})
        exact = client.post(URL, json={"X": X.tolist()})
    assert many.status_code == 413
    assert "expected at most 4 rows whose inputs are uncertain in a request, got 5" in many.json()["message"]
    assert (four.status_code, exact.status_code) == (200, 200)


def test_the_document_names_the_ways(models):
    with asked(models) as client:
        told = client.get("/openapi.json").json()["components"]["schemas"]["Points"]["properties"]
    assert list(get_args(Way)) == list(WAYS) == told["inputs"]["anyOf"][0]["enum"]
    kinds = told["X_variance"]["anyOf"][0]["oneOf"]
    assert [one["items"]["items"]["type"] for one in kinds] == ["number", "array"]


# --- Arrow ---

IN = {"Content-Type": MEDIA_TYPE}


@pytest.mark.parametrize("variance", [VARIANCE, COVARIANCE], ids=["variances", "covariances"])
def test_arrow_and_json_say_the_same(models, variance):
    pytest.importorskip("pyarrow", reason="Arrow: pip install 'bcmdist[tables]'")
    with asked(models) as client:
        table = write_table({"X": X, "X_variance": variance}, {})
        arrow = client.post(f"{URL}?inputs=taylor", content=table, headers=IN)
        json = client.post(URL, json=body(variance, inputs="taylor"))
    assert arrow.status_code == 200, arrow.text
    assert arrow.json() == json.json()


def test_arrow_columns_by_name(tmp_path):
    pytest.importorskip("pyarrow", reason="Arrow: pip install 'bcmdist[tables]'")
    pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
    frame = pd.DataFrame(RNG.uniform(-2, 2, (60, 2)), columns=["depth", "north"])
    gbcm = GBCM.fit(
        (frame, frame.depth**2),
        Settings(partition="chunks", query=10, learn=False, kernel="se"),
        model=tmp_path / "wave",
    )
    columns = {"north": X[:, 1], "X_variance": VARIANCE[:, ::-1], "depth": X[:, 0]}
    with asked(tmp_path) as client:
        answer = client.post(URL, content=write_table(columns, {}), headers=IN)
    assert_says(answer, gbcm.predict(X, X_variance=VARIANCE))


@pytest.mark.parametrize(
    ("variance", "query", "text"),
    [
        (VARIANCE[:, 0], "", "expected one column X_variance of fixed-size lists of numbers, found"),
        (COVARIANCE.reshape(5, 4), "", "X_variance: expected shape (5, 2), a variance for each input, or (5, 2, 2)"),
        (np.full((5, 2), np.nan), "", "X_variance: expected finite variances"),
        (VARIANCE, "?inputs=other", "query.inputs: Input should be 'exact', 'taylor' or 'montecarlo'"),
    ],
    ids=["numbers", "flat", "nan", "way"],
)
def test_arrow_that_tells_no_errors_is_refused(models, variance, query, text):
    pytest.importorskip("pyarrow", reason="Arrow: pip install 'bcmdist[tables]'")
    with asked(models) as client:
        answer = client.post(URL + query, content=write_table({"X": X, "X_variance": variance}, {}), headers=IN)
    assert answer.status_code == 422, answer.text
    assert text in answer.json()["message"]


def test_gaps_in_lists_are_refused(models):
    pa = pytest.importorskip("pyarrow", reason="Arrow: pip install 'bcmdist[tables]'")
    inner = pa.FixedSizeListArray.from_arrays(pa.array([0.1, None] * 10), 2)
    batch = pa.record_batch({"X": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 2), "X_variance": inner[:5]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with asked(models) as client:
        answer = client.post(URL, content=sink.getvalue().to_pybytes(), headers=IN)
    assert answer.status_code == 422
    assert "expected a number in every row of X_variance" in answer.json()["message"]
