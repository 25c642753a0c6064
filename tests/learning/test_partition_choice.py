"""`--partition auto`: cells of near rows where a fit can copy them and gains by it, else rows as they are stored."""

from bisect import bisect_left
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, GBCMClassifier, GBCMRegressor, Settings
from bcmdist.api.plan.plan import plan
from bcmdist.app.cli.main import cli
from bcmdist.data.dataset import open_data
from bcmdist.errors import ModelExists
from bcmdist.learning.partition_choice import MOST_ROWS, choose_partition
from bcmdist.runtime.interface import SerialRuntime

AUTO = Settings(kernel="se", query=40, rows_per_expert=60, learn=False)
CHUNKS, SPATIAL = replace(AUTO, partition="chunks"), replace(AUTO, partition="spatial")


def chosen(data, settings, model="model", runtime=None):
    taken, decisions = choose_partition(settings, open_data(data), model, runtime or SerialRuntime())
    assert [one["taken"] for one in decisions] == [taken.partition]
    return taken.partition, decisions[0]["judge"]


def same_predictions(one, other, X):
    for name, values in one.predict(X).items():
        np.testing.assert_array_equal(values, other.predict(X)[name], err_msg=name)


def test_a_fit_is_that_of_cells(wave, tmp_path):
    path, X, _ = wave
    made = GBCM.fit(path, AUTO, model=tmp_path / "model")
    assert made.chosen_method() == "local"
    same_predictions(made, GBCM.fit(path, SPATIAL), X[:50])
    said = made.info()["decisions"][0]
    assert (said["of"], said["taken"]) == ("partition", "spatial")


def test_it_is_more_accurate(rng):
    X = rng.uniform(-4, 4, (1500, 2))
    y = np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1])
    given = {"kernel": "se", "query": 50, "effort": "quick"}
    errors = [
        np.sqrt(
            np.mean((GBCMRegressor(**given, partition=how).fit(X[:1000], y[:1000]).predict(X[1000:]) - y[1000:]) ** 2)
        )
        for how in ("auto", "chunks")
    ]
    assert errors[0] < 0.5 * errors[1], errors  # 50 query points cannot show so many bumps


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"query": 240}, "query points as many as rows"),
        ({"query": None}, "query points as many as rows"),  # the default is 500
        ({"query": "auto"}, "query points as many as rows"),
        ({"expert": "fitc"}, "another expert than bcm"),
        ({"expert": "fourier", "query": None}, "another expert than bcm"),
        ({"likelihood": "softmax_coupled"}, "options that it cannot be combined with"),
        ({"noisy_inputs": "hmc"}, "inputs with errors"),
        ({"passes": "1"}, "options that concern one committee"),
        ({"linearise": "running"}, "options that concern one committee"),
        ({"objective": "committee"}, "options that it cannot be combined with"),
        ({"objective": "subset"}, "options that concern one committee"),
    ],
)
def test_rows_as_stored_for_a_reason(wave, changes, why):
    taken, told = chosen(wave[0], replace(AUTO, **{"learn": True} | changes))
    assert (taken, told[: len(why)]) == ("chunks", why)


def test_places_and_machines_count(wave, monkeypatch):
    path = wave[0]
    assert chosen(path, AUTO)[0] == "spatial"
    taken, why = chosen(path, AUTO, model="s3://bucket/models/wave")
    assert (taken, "object store" in why) == ("chunks", True)

    taken, why = chosen(path, AUTO, runtime=SerialRuntime(allowed_bytes=1000))
    assert (taken, "memory" in why) == ("chunks", True)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Disk", (), {"free": 240 * 3 * 8})())
    taken, why = chosen(path, AUTO)
    assert (taken, "disk space" in why) == ("chunks", True)


def test_a_plan_counts_classes_as_a_fit_does(make_data, rng, monkeypatch):
    X = rng.uniform(-2, 2, (240, 2))
    path = make_data("classes.zarr", X=X, y=rng.permutation(np.arange(240) % 12))
    data, labels, seen = open_data(path), range(12), []
    settings = replace(AUTO, task="classification")

    def of(allowed, **how):
        return choose_partition(settings, data, "m", SerialRuntime(allowed_bytes=allowed), **how)[0].partition

    least = bisect_left(range(10**10), True, key=lambda size: of(size, labels=labels) == "spatial")
    allowed = least - 1
    assert (of(allowed), of(allowed, labels=labels)) == ("spatial", "chunks")
    monkeypatch.setattr("bcmdist.api.plan.plan.fit_context", lambda *given: seen.append(given[2]) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plan(path, settings, runtime=SerialRuntime(allowed_bytes=allowed))
    assert [one.partition for one in seen] == ["chunks"]


def test_huge_data_sets_are_not_copied(wave, monkeypatch):
    data = open_data(wave[0])
    assert choose_partition(AUTO, replace(data, rows=MOST_ROWS), "m", SerialRuntime())[0].partition == "spatial"
    taken, decisions = choose_partition(AUTO, replace(data, rows=MOST_ROWS + 1), "m", SerialRuntime())
    assert (taken.partition, "1,000,000 rows" in decisions[0]["judge"]) == ("chunks", True)


def test_what_is_given_is_taken(wave):
    for given in (CHUNKS, SPATIAL):
        assert choose_partition(given, open_data(wave[0]), "m", SerialRuntime()) == (given, [])


@pytest.mark.parametrize("first", [AUTO, CHUNKS, SPATIAL])
def test_a_fit_begun_in_either_way_is_continued(wave, tmp_path, first):
    path, X, _ = wave
    model = tmp_path / "model"
    begun = GBCM.fit(path, first, model=model)
    again = GBCM.fit(path, AUTO, model=model)
    assert again.commit == begun.commit
    same_predictions(begun, again, X[:20])
    other = CHUNKS if begun.chosen_method() == "local" else SPATIAL
    with pytest.raises(ModelExists, match="the same fit to continue"):
        GBCM.fit(path, other, model=model)


def test_rows_that_will_follow_are_taken_as_they_arrive(wave, tmp_path):
    path, X, y = wave
    prepared = GBCM.prepare(path, AUTO, model=tmp_path / "model")
    assert prepared.model.cells is None
    assert GBCM.fit(path, AUTO, model=tmp_path / "model").chosen_method() == "committee"
    how = {"kernel": "se", "query": 40, "options": {"learn": False}}
    streamed = GBCMRegressor(**how).partial_fit(X[:120], y[:120]).partial_fit(X[120:], y[120:])
    assert streamed.gbcm_.chosen_method() == "committee"
    assert streamed.gbcm_.info()["rows"] == 240
    classes = GBCMClassifier(**how).partial_fit(X[:120], y[:120] > 0, classes=[False, True])
    assert classes.gbcm_.chosen_method() == "committee"
    assert GBCMRegressor(**how).fit(X, y).gbcm_.chosen_method() == "local"


def test_the_command_says_what_was_chosen(wave, tmp_path):
    path = wave[0]
    words = ["fit", path, "--model", str(tmp_path / "m"), "--kernel", "se", "--no-learn", "--serial"]
    done = CliRunner().invoke(cli, [*words, "--query", "40"])
    assert done.exit_code == 0, done.output
    assert "partition: spatial, by rows that can be read again and copied" in done.output
    few = CliRunner().invoke(cli, [*words[:3], str(tmp_path / "few"), *words[4:]])
    assert "partition: chunks, by query points as many as rows" in few.output


def test_a_plan_is_of_what_will_be_chosen(wave):
    assert {"cells", "halos"} <= plan(wave[0], AUTO).projected_seconds.keys()
    assert not {"cells", "halos"} & plan(wave[0], replace(AUTO, query=240)).projected_seconds.keys()
