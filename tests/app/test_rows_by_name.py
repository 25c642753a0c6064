"""A row of the table is what every door takes: Python, a file, HTTP as JSON and as Arrow, the client."""

import io
import json
import urllib.error
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from services import asked, client_of, send

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.app.service.answers import Refused
from bcmdist.app.service.bodies import NewRows, Points
from bcmdist.app.service.json_requests import read_body
from bcmdist.client import Client, rows_of
from bcmdist.data.arrow import MEDIA_TYPE
from bcmdist.data.tables.frames import coded
from bcmdist.errors import BcmdistWarning, InvalidData, ModelNotFound, ServiceRefused

NEW = pd.DataFrame(
    {
        "area": [70.0, 120.5, 33.0],
        "town": ["Ulm", "Chur", "Ulm"],
        "sold": pd.to_datetime(["2024-03-01", "2025-01-31", "2024-12-24"]),
        "age": [3.0, np.nan, 40.0],
    }
)
RECORDS = [
    {"area": 70.0, "town": "Ulm", "sold": "2024-03-01", "age": 3},
    {"area": 120.5, "town": "Chur", "sold": "2025-01-31", "age": None},
    {"area": 33, "town": "Ulm", "sold": "2024-12-24", "age": 40.0, "comment": "ignored"},
]
URL = "/models/flats/predict"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Directory of a table's model, fitted by the command line; the table is there, too."""
    place, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(0)
    count = 400
    frame = pd.DataFrame(
        {
            "area": rng.uniform(30, 200, count).round(1),
            "town": rng.choice(["Ulm", "Graz", "Chur"], count),
            "sold": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, count), "D"),
            "age": np.where(rng.uniform(size=count) < 0.2, np.nan, rng.integers(0, 90, count)),
        }
    )
    frame["price"] = 2.5 * frame.area + 40.0 * (frame.town == "Chur") + 5.0 * rng.standard_normal(count)
    frame.to_csv(place.parent / "flats.csv", index=False)
    words = ["--y", "price", "--query", "30", "--no-learn", "--kernel", "se", "--missing", "indicate", "--serial"]
    for name, partition in {"flats": "auto", "stream": "chunks"}.items():
        how = ["--model", str(place / name), "--partition", partition, *words]
        done = CliRunner().invoke(cli, ["fit", str(place.parent / "flats.csv"), *how])
        assert done.exit_code == 0, done.output
    return place


@pytest.fixture(scope="module")
def expected(folder):
    return GBCM.load(folder / "flats").predict(NEW)


def same(found, expected):
    np.testing.assert_allclose(found["observation_mean"], expected["observation_mean"], rtol=1e-12)
    np.testing.assert_allclose(found["upper95"], expected["upper95"], rtol=1e-12)


def stream(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


# --- The same row through every door ---


def test_objects_by_column_name(folder, expected):
    with asked(folder) as client:
        same(client.post(URL, json={"rows": RECORDS}).json()["predictions"], expected)


def test_levels_that_training_lacks_are_taken_for_random_ones(folder):
    row = RECORDS[0] | {"town": "Wien"}
    with pytest.warns(BcmdistWarning, match="the level of 'town' in 1 row is not in the training data"):
        expected = GBCM.load(folder / "flats").predict(NEW[:1].assign(town="Wien"))
    with asked(folder) as client:
        same(client.post(URL, json={"rows": [row]}).json()["predictions"], expected)


def test_a_table_in_arrow(folder, expected):
    table = pa.Table.from_pandas(NEW, preserve_index=False)
    with asked(folder) as client:
        answer = client.post(URL, content=stream(table), headers={"Content-Type": MEDIA_TYPE})
        assert answer.status_code == 200, answer.text
        same(answer.json()["predictions"], expected)
        texts = table.set_column(2, "sold", pa.array([one["sold"] for one in RECORDS]))
        answer = client.post(URL, content=stream(texts), headers={"Content-Type": MEDIA_TYPE})
        same(answer.json()["predictions"], expected)


def test_a_file(folder, expected, tmp_path):
    NEW.to_csv(tmp_path / "new.csv", index=False)
    words = [
        "predict",
        str(folder / "flats"),
        str(tmp_path / "new.csv"),
        "--out",
        str(tmp_path / "out.csv"),
        "--serial",
    ]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    same(pd.read_csv(tmp_path / "out.csv"), expected)


# --- Joining back ---


def test_predictions_stand_beside_the_columns_of_their_rows(folder, expected, tmp_path):
    """Of a file with further columns, quotes, leading zeros and gaps, each written as it is there."""
    code = ["007", "12", "A,3"]
    for name in ("new.csv", "new.parquet"):
        frame = NEW.assign(code=code, mean=[1, 2, 3])
        frame.to_csv(tmp_path / name, index=False) if name.endswith("csv") else frame.to_parquet(tmp_path / name)
        out = str(tmp_path / f"of_{name}")
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            words = ["predict", str(folder / "flats"), str(tmp_path / name), "--out", out, "--serial"]
            done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
        assert "'mean' not written: predictions have this name" in done.stderr
        found = pd.read_csv(out, dtype={"code": str}) if name.endswith("csv") else pd.read_parquet(out)
        assert list(found.columns[:6]) == ["row", "area", "town", "sold", "age", "code"]
        assert found.code.tolist() == code
        assert np.isnan(found.age[1])
        same(found, expected)
        np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-12)


@pytest.mark.filterwarnings("default::bcmdist.errors.BcmdistWarning")  # of the rows left out
def test_rows_that_are_left_out_are_not_joined(tmp_path, rng):
    """With rows dropped for gaps, over several pieces of the file."""
    frame = pd.DataFrame({"a": rng.uniform(-1, 1, 90), "code": [f"c{k}" for k in range(90)]})
    frame["y"] = frame.a
    frame.loc[[0, 7, 8, 40, 89], "a"] = np.nan
    frame.to_csv(tmp_path / "a.csv", index=False)
    how = ["--y", "y", "--drop", "code", "--missing", "drop", "--no-learn", "--kernel", "se", "--serial"]
    model = str(tmp_path / "model")
    assert CliRunner().invoke(cli, ["fit", str(tmp_path / "a.csv"), "--model", model, *how]).exit_code == 0
    for name, pieces in {"one": 65_536, "many": 4}.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bcmdist.api.files.PIECE_ROWS", pieces)
            words = ["predict", model, str(tmp_path / "a.csv"), "--out", str(tmp_path / f"{name}.csv"), "--serial"]
            done = CliRunner().invoke(cli, words)
            assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "one.csv")
    pd.testing.assert_frame_equal(found, pd.read_csv(tmp_path / "many.csv"))
    assert found.row.tolist() == [k for k in range(90) if k not in (0, 7, 8, 40, 89)]
    assert found.code.tolist() == [f"c{k}" for k in found.row]
    named = ["predict", model, str(tmp_path / "a.csv"), "--out", str(tmp_path / "id.csv"), "--id", "code", "--serial"]
    assert CliRunner().invoke(cli, named).exit_code == 0
    assert list(pd.read_csv(tmp_path / "id.csv").columns[:3]) == ["row", "code", "observation_mean"]


def test_large_bodies_are_read_in_pieces(folder, expected):
    many = [{**one, "comment": 'of {"braces"}, [brackets] and \\ "quotes"'} for one in RECORDS] * 800
    body = json.dumps({"rows": many, "intervals": [0.5]})
    assert len(body) > 2**17
    with asked(folder) as client:
        found = client.post(URL, content=body, headers={"Content-Type": "application/json"}).json()["predictions"]
    same({name: np.reshape(values, (800, 3))[799] for name, values in found.items()}, expected)


def test_rows_are_absorbed_by_name(folder):
    rows = [{**one, "price": 200.0 + k} for k, one in enumerate(RECORDS)]
    with asked(folder) as client:
        first = send(client, {"rows": rows}, "flats-1", "stream")
        assert first.status_code == 200, first.text
        assert send(client, {"rows": rows}, "flats-1", "stream").headers["Idempotent-Replayed"] == "true"
        beside = send(client, {"rows": RECORDS, "y": [200.0, 201.0, 202.0]}, "flats-1", "stream")
        assert beside.json() == first.json()  # the same rows
        assert client.get("/models/stream").json()["rows"] == 403


# --- What is refused, and told ---


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"town": None}, "expected a value in each row of 'town', which had no gaps in training, got null in row 1"),
        ({"area": "large"}, "'area', got both, the first text in row 1"),
        ({"sold": "soon"}, "expected a date such as .* in 'sold', got 'soon'"),
        ({"area": ...}, "expected the column 'area' in each row, row 1 has"),
    ],
)
def test_rows_that_do_not_fit_are_refused(folder, change, text):
    odd = {name: value for name, value in (RECORDS[1] | change).items() if value is not ...}
    with asked(folder) as client:
        answer = client.post(URL, json={"rows": [RECORDS[0], odd]})
    assert answer.status_code == 422
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(answer.json()["message"])


@pytest.mark.parametrize(
    "body",
    [
        {"X": [[1.0]], "rows": RECORDS},
        {"quantiles": [0.5]},
        {"rows": RECORDS, "columns": ["area"]},
        {"rows": []},
        {"rows": [[1.0]]},
        {"rows": [{"area": [1.0]}]},
        {"rows": [{"area": {"deep": 1.0}}]},
    ],
)
def test_bodies_are_of_one_kind(folder, body):
    with asked(folder) as client:
        assert client.post(URL, json=body).status_code == 422


def test_numbers_that_no_row_is_coded_as_are_refused(folder):
    model = GBCM.load(folder / "flats").model
    inputs = list(model.schema.columns)
    row = [70.0, 0.0, 0.0, 1.0, 19783.0, 3.0, 0.0]
    assert inputs == ["area", "town=Chur", "town=Graz", "town=Ulm", "sold", "age", "age missing"]
    with asked(folder) as client:
        assert client.post(URL, json={"X": [row]}).status_code == 200
        for town in ([7.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.5, 0.5, 0.0]):
            answer = client.post(URL, json={"X": [[row[0], *town, *row[4:]]]})
            assert answer.status_code == 422
            assert "expected 1 in one of the inputs 'town=Chur'" in answer.json()["message"]
        odd = send(client, {"X": [[row[0], 7.0, 0.0, 0.0, *row[4:]]], "y": [1.0]}, "odd", "stream")
        assert odd.status_code == 422


@pytest.mark.parametrize("kind", [Points, NewRows])
@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"rows": [{"a": 1.0}, {"a": [1]}]}', None),
        ('{"rows": [{"a": 1.0}, {"a": NaN}]}', None),
        ('{"rows": [{"a": 1.0} {"a": 2.0}]}', None),
        ('{"rows": [{"a": 1.0}, {"a": 2.0}, ]}', None),
        ('{"rows": [{"a": 1.0}, 3.0]}', None),
        ('{"rows": [{"a": "x]}', None),
    ],
)
def test_broken_objects_are_refused(kind, text, where):
    with pytest.raises(Refused):
        read_body(kind, text.encode(), most_rows=10)


def test_pieces_count_rows():
    text = json.dumps({"rows": [{"a": k, "b": "x,y}"} for k in range(2000)]}).encode()
    found = read_body(Points, text, most_rows=2000)
    assert [one["a"] for one in found.rows] == list(range(2000))
    with pytest.raises(Refused, match="at most 1000 rows"):
        read_body(Points, text, most_rows=1000)
    wrong = text.replace(b'{"a": 1500,', b'{"a": [1],')
    with pytest.raises(Refused):
        read_body(Points, wrong, most_rows=2000)


def test_empty_lists_next_to_rows_are_read_in_pieces():
    for body in ({"X": [[1.0, 2.0]] * 3, "quantiles": []}, {"rows": [{"a": 1.0}], "intervals": []}):
        found = read_body(Points, json.dumps(body).encode(), most_rows=10)
        assert (found.quantiles, found.intervals) == ([], [])


def test_numbers_written_as_texts_are_numbers_of_a_form(tmp_path, rng):
    """A page's form and JSON have a number for them, whatever the decimal mark of the table was."""
    area = rng.uniform(30, 200, 90)
    frame = pd.DataFrame({"area": [f"{a:.1f} m²".replace(".", ",") for a in area], "y": area})
    with pytest.warns(UserWarning, match="texts are read as numbers in 'area'"):
        GBCM.fit((frame[["area"]], frame.y), Settings(kernel="se", query=20, learn=False), model=tmp_path / "flats")
    with asked(tmp_path) as client:
        assert client.get("/models/flats").json()["fields"] == [
            {
                "name": "area",
                "kind": "number",
                "gaps": False,
                "unit": "m²",
                "low": area.round(1).min(),
                "high": area.round(1).max(),
            }
        ]
        rows = [{"rows": [{"area": value}]} for value in (70.5, "70,5 m²")]
        number, text = (client.post(URL, json=row).json()["predictions"] for row in rows)
    same(number, {name: np.array(values) for name, values in text.items()})


def test_a_model_tells_the_columns_of_its_table(folder):
    with asked(folder) as client:
        fields = client.get("/models/flats").json()["fields"]
    ranges = [(one.pop("low"), one.pop("high")) for one in fields if "low" in one]
    assert all(low < high for low, high in ranges)
    assert len(ranges) == 3
    assert fields == [
        {"name": "area", "kind": "number", "gaps": False},
        {"name": "town", "kind": "category", "gaps": False, "levels": ["Chur", "Graz", "Ulm"]},
        {"name": "sold", "kind": "date", "gaps": False, "zoned": False, "form": ""},
        {"name": "age", "kind": "number", "gaps": True},
    ]


def test_arrays_without_names_have_no_objects(tmp_path, rng):
    X = rng.uniform(-2, 2, (60, 2))
    GBCM.fit((X, X[:, 0]), Settings(kernel="se", query=20, learn=False), model=tmp_path / "plain")
    with asked(tmp_path) as client:
        assert client.get("/models/plain").json()["fields"] is None
        answer = client.post("/models/plain/predict", json={"rows": [{"a": 1.0}]})
    assert (answer.status_code, "had no names" in answer.json()["message"]) == (422, True)


# --- The client ---


@pytest.fixture
def client(folder):
    with asked(folder) as service:
        yield client_of(service)


def test_a_client_predicts_frames_objects_and_arrays(client, folder, expected):
    assert client.models() == ["flats", "stream"]
    assert client.describe("flats")["fields"][0]["name"] == "area"
    for rows in (NEW, RECORDS, pa.Table.from_pandas(NEW)):
        same(client.predict("flats", rows), expected)
    found = client.predict("flats", NEW, quantiles=[0.1], intervals=[0.8], method="committee")
    assert {"quantile0.1", "lower80", "upper80"} <= found.keys()
    same(client.predict("flats", coded(NEW, GBCM.load(folder / "flats").model.schema.coding)), expected)


def test_a_client_sends_rows_once(client):
    before = client.describe("stream")["rows"]
    rows = NEW.assign(price=[1.0, 2.0, 3.0])
    first = client.absorb("stream", rows, key="by-client")
    assert client.absorb("stream", rows, key="by-client") == first
    assert client.describe("stream")["rows"] == before + 3


def test_a_client_raises_what_the_service_says(client, monkeypatch):
    with pytest.raises(InvalidData, match="which had no gaps in training"):
        client.predict("flats", [RECORDS[0] | {"town": None}])
    with pytest.raises(ModelNotFound, match="nothing is not"):
        client.describe("nothing")
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(ServiceRefused, match="expected a service that answers"):
        Client("http://127.0.0.1:9", tries=2).models()


def test_a_client_waits_for_a_busy_service(monkeypatch):
    waited, answers = [], [503, 429, 200]

    def answer(self, request):
        status = answers.pop(0)
        if status == 200:
            return io.BytesIO(b'{"models": [{"name": "wave"}]}')
        raise urllib.error.HTTPError(request.full_url, status, "", {"Retry-After": "5"}, io.BytesIO(b""))

    monkeypatch.setattr("time.sleep", waited.append)
    monkeypatch.setattr(Client, "_open", answer)
    assert Client("http://127.0.0.1").models() == ["wave"]
    assert waited == [5.0, 5.0]


def test_cells_become_json():
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None], dtype="Int64"),
            "t": pd.to_datetime(["2026-01-02T03:04", None]),
            "s": pd.Categorical(["a", None]),
            "b": [True, False],
        }
    )
    assert rows_of(frame)["rows"] == [
        {"n": 1.0, "t": "2026-01-02T03:04:00", "s": "a", "b": True},
        {"n": None, "t": None, "s": None, "b": False},
    ]
    assert rows_of(np.eye(2)) == {"X": [[1.0, 0.0], [0.0, 1.0]]}
