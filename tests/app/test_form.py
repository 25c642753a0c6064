"""The row at which a form starts, and the ranges of its sliders, as `GET /models/{name}?start=true` returns them."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from services import asked, fitted

from bcmdist import GBCM, Settings
from bcmdist.app import figures
from bcmdist.app.cli.main import cli
from bcmdist.app.service.form import fields_of, last_row
from bcmdist.app.service.tokens import Tokens, add_token

ROWS, LAST = 90, 89
WORDS = ["--y", "yield", "--query", "20", "--no-learn", "--kernel", "se", "--missing", "indicate", "--serial"]
pytestmark = pytest.mark.filterwarnings("default:.*texts are read as numbers")


@pytest.fixture
def frame(rng):
    age = np.arange(ROWS, dtype=float)
    age[[3, LAST]] = np.nan
    return pd.DataFrame(
        {
            "temperature": [f"{t:.1f} °C" for t in rng.uniform(-5, 30, ROWS)],
            "soil": rng.choice(["clay", "loam", "sand"], ROWS),
            "day": (pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(ROWS), "D")).strftime("%Y-%m-%d"),
            "age": age,
            "yield": rng.uniform(0, 1, ROWS),
        }
    )


@pytest.fixture
def models(tmp_path, frame):
    """A directory with the model `field` of a table, in the order of its rows."""
    frame.to_csv(tmp_path / "field.csv", index=False)
    how = ["--model", str(tmp_path / "models" / "field"), "--partition", "chunks", *WORDS]
    done = CliRunner().invoke(cli, ["fit", str(tmp_path / "field.csv"), *how])
    assert done.exit_code == 0, done.output
    return tmp_path / "models"


def described(client, name="field"):
    return client.get(f"/models/{name}?start=true").json()


def degrees(text):
    return float(text.removesuffix(" °C"))


def test_a_form_starts_at_the_last_row_absorbed(models, frame):
    new = {"temperature": 12.5, "soil": "sand", "day": "2026-05-04", "age": 7.0, "yield": 0.5}
    with asked(models) as client:
        before = described(client)
        assert "start" not in client.get("/models/field").json()
        answer = client.post("/models/field/rows", json={"rows": [new]}, headers={"Idempotency-Key": "one"})
        after = described(client)
        predicted = client.post("/models/field/predict", json={"rows": [after["start"]["row"]]})
    assert (answer.status_code, predicted.status_code) == (200, 200)
    last = frame.iloc[LAST]
    expected = {"temperature": degrees(last.temperature), "soil": last.soil, "day": last.day, "age": None}
    assert before["start"] == {"last": True, "row": expected}
    assert after["start"] == {"last": True, "row": {n: v for n, v in new.items() if n != "yield"}}


def test_fields_have_units_and_ranges(models, frame):
    with asked(models) as client:
        found = described(client)
    fields = {one["name"]: one for one in found["fields"]}
    values = frame.temperature.map(degrees)
    assert [fields["temperature"][name] for name in ("unit", "low", "high")] == ["°C", values.min(), values.max()]
    assert (fields["age"]["high"], "low" in fields["soil"], found["target"]) == (LAST - 1, False, "yield")
    assert [fields["day"][name] for name in ("low", "high")] == [frame.day.min(), frame.day.max()]
    assert len(found["ranges"]) == GBCM.load(models / "field").model.inputs


def test_a_form_starts_at_a_typical_row_if_the_rows_are_gone(models, frame, monkeypatch):
    def gone(parts):
        raise OSError("gone")

    monkeypatch.setattr("bcmdist.app.service.form.read_all", gone)
    with asked(models) as client:
        start = described(client)["start"]
    assert start["last"] is False
    assert start["row"]["soil"] == frame.soil.mode()[0]
    assert frame.day.min() < start["row"]["day"] < frame.day.max()
    assert len(start["row"]["day"]) == len(frame.day.min()), "a whole day"
    assert start["row"]["temperature"] == pytest.approx(frame.temperature.map(degrees).mean())


def test_rows_that_were_changed_are_not_shown(tmp_path, monkeypatch):
    snapshot = fitted(tmp_path).snapshot
    assert last_row(snapshot) is not None
    entry = snapshot.ledger[-1]
    object.__setattr__(entry, "digest", "of other rows")
    assert last_row(snapshot) is None


def test_without_names_a_form_has_a_list(tmp_path):
    snapshot = fitted(tmp_path).snapshot
    with asked(tmp_path) as client:
        found = described(client, "wave")
    assert found["fields"] is None
    assert len(found["start"]["row"]) == 2
    assert np.ravel(found["ranges"]) == pytest.approx([-2, 2, -2, 2], abs=0.2)
    old = snapshot.changed(ranges=None)  # of a version that did not record them
    assert np.shape(figures.ranges(old)) == (2, 2)
    assert np.all(np.diff(figures.ranges(old)) > 0)


def test_rows_are_shown_to_those_who_may_predict(models, tmp_path):
    path = tmp_path / "tokens.json"
    tokens = {scope: add_token(path, scope, [scope]) for scope in ("read", "ingest")}
    with asked(models, tokens=Tokens(path)) as client:
        codes = {
            scope: client.get("/models/field?start=true", headers={"Authorization": f"Bearer {token}"}).status_code
            for scope, token in tokens.items()
        }
        assert client.get("/models/field?start=true").status_code == 401
    assert codes == {"read": 200, "ingest": 403}


def test_maps_are_of_two_numbers(rng):
    """Longitudes across, whatever the order of columns; no map of a category's two levels."""
    lat, lon = rng.uniform(0, 1, 60), rng.uniform(10, 20, 60)
    settings = Settings(partition="chunks", query=20, kernel="se", learn=False)
    snapshot = GBCM.fit(pd.DataFrame({"lat": lat, "lon": lon}), lat, settings).snapshot
    found = figures.view(snapshot, lambda X: {"observation_mean": X[:, 0], "observation_variance": X[:, 1]})
    assert (found["inputs"], found["columns"]) == ([1, 0], ["lon", "lat"])
    assert found["axes"][0][0] > 9 > 2 > found["axes"][1][-1]
    assert found["observation_mean"][:2] == pytest.approx([found["axes"][1][0]] * 2)
    few = Settings(partition="chunks", query=2, kernel="se", learn=False)
    kinds = GBCM.fit(pd.DataFrame({"kind": np.where(lat > 0.5, "a", "b")}), lon, few).snapshot
    assert figures.view(kinds, None) is None


def test_a_map_has_other_columns_at_typical_values(rng):
    lat, lon = rng.uniform(0, 1, 60), rng.uniform(10, 20, 60)
    frame = pd.DataFrame({"lat": lat, "kind": np.where(lat > 0.4, "a", "b"), "lon": lon})
    settings = Settings(partition="chunks", query=20, kernel="se", learn=False)
    seen = []
    found = figures.view(GBCM.fit(frame, lat, settings).snapshot, lambda X: seen.append(X) or {"observation_mean": lat})
    assert (found["columns"], found["others"]) == (["lon", "lat"], 1)
    (X,) = seen
    assert len(np.unique(X[:, 0])) == len(np.unique(X[:, -1])) == figures.MAP_POINTS
    assert np.all(X[:, 1:-1] == X[0, 1:-1])
    assert X[0, 1:-1].sum() == 1.0


def test_a_map_of_the_globe_is_of_degrees(rng):
    frame = pd.DataFrame({"lon": rng.uniform(-180, 180, 80), "lat": rng.uniform(-80, 80, 80)})
    settings = Settings(partition="chunks", query=20, kernel="se", learn=False)
    gbcm = GBCM.fit(frame, frame["lat"], settings, sphere=("lon", "lat"))
    found = figures.view(gbcm.snapshot, gbcm.predict)
    assert (found["columns"], found["others"]) == (["lon", "lat"], 0)
    assert [found["axes"][0][0], found["axes"][0][-1], found["axes"][1][-1]] == [-180.0, 180.0, 90.0]
    of_the_form = {one["name"]: one for one in fields_of(gbcm.model, figures.ranges(gbcm.snapshot))}
    assert (of_the_form["lon"]["period"], "period" in of_the_form["lat"]) == (360.0, False)
