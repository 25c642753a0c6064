"""Arrow in and out: the same predictions as in JSON, and what is no Arrow is refused."""

import numpy as np
import pytest
from services import asked, fitted

from bcmdist import GBCM
from bcmdist.app.service.limits import Limits
from bcmdist.data.arrow import MEDIA_TYPE, write_table

pa = pytest.importorskip("pyarrow", reason="Arrow: pip install 'bcmdist[tables]'")
X = np.random.default_rng(4).uniform(-2, 2, (20, 2))
IN, OUT = {"Content-Type": MEDIA_TYPE}, {"Accept": MEDIA_TYPE}
URL = "/models/wave/predict"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fitted(folder)
    fitted(folder, "kinds", task="classification")
    return folder


def arrow(**columns):
    return write_table(columns, {})


def columns_of(answer):
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, MEDIA_TYPE), answer.text
    return pa.ipc.open_stream(answer.content).read_all()


def test_arrow_and_json_say_the_same(models):
    with asked(models) as client:
        json = client.post(URL, json={"X": X.tolist(), "intervals": [0.5], "quantiles": [0.1]}).json()
        both = client.post(f"{URL}?intervals=0.5&quantiles=0.1", content=arrow(X=X), headers=IN | OUT)
        json_in = client.post(URL, json={"X": X.tolist()}, headers=OUT)
        json_out = client.post(URL, content=arrow(X=X), headers=IN).json()
    table, gbcm = columns_of(both), GBCM.load(models / "wave")
    assert table.column_names == list(json["predictions"])
    for name in table.column_names:
        np.testing.assert_array_equal(table[name].to_numpy(), json["predictions"][name])
    about = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
    assert about == {"model": "wave", "commit": str(gbcm.commit), "method": "committee", "rows": "20"}
    np.testing.assert_array_equal(columns_of(json_in)["mean"].to_numpy(), json["predictions"]["mean"])
    assert json_out["predictions"]["mean"] == json["predictions"]["mean"]


def test_probabilities_are_lists(models):
    with asked(models) as client:
        table = columns_of(client.post("/models/kinds/predict", json={"X": X.tolist()}, headers=OUT))
    found = np.array(table["probability"].to_pylist())
    np.testing.assert_array_equal(found, GBCM.load(models / "kinds").predict(X)["probability"])


def test_columns_are_inputs_in_their_order(models):
    with asked(models) as client:
        odd = client.post(URL, content=arrow(a=X[:, 0], b=X[:, 1]), headers=IN)
    assert odd.status_code == 422
    assert "the columns of the training data had no names" in odd.json()["message"]


def test_columns_by_name(tmp_path):
    pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
    from bcmdist import Settings

    frame = pd.DataFrame(X, columns=["depth", "north"])
    gbcm = GBCM.fit(
        (frame, frame.depth), Settings(partition="chunks", query=10, learn=False, kernel="se"), model=tmp_path / "wave"
    )
    with asked(tmp_path) as client:
        found = client.post(URL, content=arrow(north=X[:, 1], depth=X[:, 0]), headers=IN).json()
    np.testing.assert_allclose(found["predictions"]["mean"], gbcm.predict(X)["mean"], rtol=1e-14)


def compressed():
    sink, table = pa.BufferOutputStream(), pa.table({"X": np.zeros(50)})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 422, "expected an Arrow IPC stream with a record batch"),
        (b"\xff" * 1000, 422, "expected an Arrow IPC stream with a record batch"),
        (b'{"X": [[0.0, 1.0]]}', 422, "expected an Arrow IPC stream with a record batch"),
        (arrow(X=X[:, :1]), 422, "X: expected shape (n, 2), as in training, got (20, 1)"),
        (arrow(X=np.full((3, 2), np.nan)), 422, "X: expected finite numbers"),
        (arrow(X=np.zeros((200, 2))), 413, "X: expected at most 100 rows in a request, got 200"),
        (compressed(), 422, "expected uncompressed record batches"),
    ],
    ids=["empty", "noise", "json", "narrow", "nan", "many", "compressed"],
)
def test_what_cannot_be_read_is_refused(models, body, status, text):
    with asked(models, limits=Limits(rows=100)) as client:
        answer = client.post(URL, content=body, headers=IN)
    assert answer.status_code == status, answer.text
    assert text in answer.json()["message"]
    assert str(models) not in answer.text


def test_the_document_tells_of_both(models):
    with asked(models) as client:
        told = client.get("/openapi.json").json()["paths"]["/models/{name}/predict"]["post"]
    assert told["requestBody"]["content"].keys() == {"application/json", MEDIA_TYPE}
    assert told["responses"]["200"]["content"].keys() == {"application/json", MEDIA_TYPE}


def in_batches(*sizes):
    """A stream of the rows of X in record batches of so many rows."""
    sink, ends = pa.BufferOutputStream(), np.cumsum(sizes)
    lists = [
        pa.FixedSizeListArray.from_arrays(pa.array(X[end - size : end].ravel()), 2)
        for size, end in zip(sizes, ends, strict=True)
    ]
    batches = [pa.record_batch({"X": one}) for one in lists]
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def test_all_record_batches_of_a_stream_are_predicted(models):
    with asked(models) as client:
        answer = client.post(URL, content=in_batches(2, 2, 2), headers=IN).json()
    assert answer["rows"] == 6
    np.testing.assert_allclose(
        answer["predictions"]["mean"], GBCM.load(models / "wave").predict(X[:6])["mean"], rtol=1e-14
    )


def test_the_limit_of_rows_is_one_of_all_record_batches_before_one_is_decoded(models, monkeypatch):
    monkeypatch.setattr(pa.ipc, "read_record_batch", None)
    with asked(models, limits=Limits(rows=5)) as client:
        answer = client.post(URL, content=in_batches(2, 2, 2), headers=IN)
    assert (answer.status_code, answer.json()["error"]) == (413, "TooManyRows")
    assert "at most 5 rows in a request, got 6" in answer.json()["message"]
