"""Reports: one page that stands alone, whatever names are in it, and what it says is so."""

import json
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.api.comparison import remarks
from bcmdist.api.report import page
from bcmdist.api.report.report import report
from bcmdist.api.report.tables import groups
from bcmdist.app.cli.main import cli
from bcmdist.data.schema import Schema
from bcmdist.data.writing import write_dataset
from bcmdist.errors import BcmdistWarning, DataNotFound, InvalidData, InvalidOption, MissingExtra

pytest.importorskip("matplotlib", reason="pictures: pip install 'bcmdist[plot]'")

QUICK = {"learn": False, "kernel": "se", "query": 20, "rows_per_expert": 60}
NASTY = ("<script>alert(1)</script>", 'a"b&c', "$x_1$ & $y")


class Reader(HTMLParser):
    """Elements, their attributes, and texts of a page; elements that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.open, self.texts = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for n, v in attrs if n in ("src", "href", "xlink:href", "action") or n.startswith("on")]
        if tag not in ("meta", "path", "use", "image", "rect", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture
def parts(tmp_path, rng):
    """Training and test rows by task: paths of data sets with nasty names."""

    def make(task):
        X = rng.uniform(-2, 2, (360, 3))
        f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
        classes = ("no <b>", "yes & $no$", "maybe") if task == "classification" else ()
        columns = {
            "regression": {"y": f + 0.1 * rng.standard_normal(360)},
            "classification": {"y": np.digitize(f, [-0.7, 0.7]).astype(np.uint8)},
            "counts": {"y": rng.poisson(2 * np.exp(f)).astype(float), "exposure": np.full(360, 2.0)},
            "lifetimes": {"y": np.exp(f) * rng.weibull(1.5, 360) + 1e-3, "event": 1.0 * (rng.random(360) < 0.7)},
        }[task]
        paths = [str(tmp_path / f"{part}.zarr") for part in ("train", "test")]
        for path, rows in zip(paths, (slice(0, 240), slice(240, None)), strict=True):
            part = {"X": X[rows]} | {name: values[rows] for name, values in columns.items()}
            write_dataset(path, part, rows_per_chunk=60, schema=Schema(NASTY, classes))
        return paths

    return make


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification", "counts", "lifetimes"])
def test_a_page_for_every_family(task, parts, tmp_path):
    train, test = parts(task)
    model = GBCM.fit(train, Settings(**QUICK, task=task))
    out = tmp_path / "report.html"
    figures = model.report(test, out)
    assert figures["rows"] == 120
    for name, value in model.score(test).items():
        if isinstance(value, float):  # the same sums in another order
            assert figures["scores"][name] == pytest.approx(value, rel=1e-9, nan_ok=True), name
    assert set(figures["baselines"]) == {"mean", "linear least squares", "nearest neighbours", "boosted trees"}
    assert figures["learned_from"] == "learned from 240 of the 240 rows of train.zarr"
    text = out.read_text()
    found = Reader(text)
    assert found.open == []
    assert found.tags.count("svg") == 3
    assert not {"script", "iframe", "object", "link", "b"} & set(found.tags)
    assert [one for one in found.links if not one.startswith(("#", "data:image/png;base64,"))] == []
    assert not re.search(r"url\((?!#)", text)
    texts = " ".join(found.texts)
    for name in NASTY:
        assert name in texts
    assert "mathdefault" not in texts  # a formula that nobody has set
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    for heading in (
        "In words",
        "Scores beside simple baselines and boosted trees",
        "Can its uncertainty be trusted?",
        "worst",
    ):
        assert heading in texts
    json.dumps(figures, allow_nan=True)


@pytest.mark.slow
def test_what_is_said_of_where_baselines_learn(parts, tmp_path):
    train, test = parts("regression")
    model = GBCM.fit(train, Settings(**QUICK), model=str(tmp_path / "m"))
    (tmp_path / "train.zarr").rename(tmp_path / "moved.zarr")
    figures = model.report(test, tmp_path / "a.html")
    assert figures["baselines"] == {}
    assert "are not at" in figures["learned_from"]
    assert "give --train TRAIN.zarr" in (tmp_path / "a.html").read_text()
    figures = model.report(test, tmp_path / "a.html", train=str(tmp_path / "moved.zarr"))
    assert figures["learned_from"].endswith("rows of moved.zarr")
    with pytest.raises(DataNotFound):
        model.report(test, tmp_path / "b.html", train=str(tmp_path / "nowhere.zarr"))
    assert not (tmp_path / "b.html").exists()
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification", "counts", "lifetimes"])
def test_one_row_makes_a_page(task, parts, tmp_path):
    train, _ = parts(task)
    model = GBCM.fit(train, Settings(**QUICK, task=task))
    one = {"X": np.zeros((1, 3)), "y": np.ones(1)}
    write_dataset(tmp_path / "one.zarr", one, schema=Schema(NASTY, model.model.schema.classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # no exposure, say
        if task == "lifetimes":
            write_dataset(tmp_path / "ended.zarr", one | {"event": np.ones(1)}, schema=Schema(NASTY))
        figures = model.report(tmp_path / ("ended.zarr" if task == "lifetimes" else "one.zarr"), tmp_path / "a.html")
    assert figures["rows"] == 1
    assert any(one.startswith("1 rows say little") for one in figures["remarks"])


@pytest.mark.slow
def test_rows_of_training_are_told(parts, tmp_path):
    train, _ = parts("regression")
    figures = GBCM.fit(train, Settings(**QUICK)).report(train, tmp_path / "a.html")
    assert "these rows are those that the model was fitted to: every figure here flatters it" in figures["remarks"]


def test_the_table_of_training_is_told(tmp_path, rng):
    x = rng.uniform(-2, 2, (200, 2))
    rows = np.column_stack([x, x[:, 0] + 0.1 * rng.standard_normal(200)])
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header="x,z,y", comments="")
    np.savetxt(tmp_path / "b.csv", rows[::-1], delimiter=",", header="x,z,y", comments="")
    model, serial = str(tmp_path / "m"), ["--serial", "--json"]
    fit = ["fit", str(tmp_path / "a.csv"), "--y", "y", "--model", model, "--kernel", "se", "--no-learn", *serial]
    assert CliRunner().invoke(cli, fit).exit_code == 0
    for name, told in (("a.csv", True), ("b.csv", False)):
        table = str(tmp_path / name)
        done = CliRunner().invoke(cli, ["report", model, table, "--out", f"{table}.html", *serial])
        assert any("these rows are those" in one for one in json.loads(done.stdout)["remarks"]) == told


@pytest.mark.slow
def test_what_cannot_be_written_is_refused_before_any_work(parts, tmp_path, monkeypatch):
    train, test = parts("regression")
    model = GBCM.fit(train, Settings(**QUICK, partition="chunks"))
    monkeypatch.setattr("bcmdist.api.report.report.subject_of", None)  # no work
    with pytest.raises(InvalidOption, match=r"report: expected a file whose name ends in .html, got .*\.pdf"):
        report(model, test, tmp_path / "a.pdf", None)
    with pytest.raises(InvalidOption, match=r"report: expected a directory at .*, found none; make it"):
        report(model, test, tmp_path / "no" / "a.html", None)
    with pytest.raises(DataNotFound):
        report(model, tmp_path / "none.zarr", tmp_path / "a.html", None)
    with pytest.raises(InvalidOption, match="method: expected"):
        report(model, test, tmp_path / "a.html", None, method="local")
    narrow = tmp_path / "narrow.zarr"
    write_dataset(narrow, {"X": np.zeros((9, 2)), "y": np.zeros(9)})
    with pytest.warns(BcmdistWarning, match="no names"), pytest.raises(InvalidData, match="expected 3 columns"):
        report(model, narrow, tmp_path / "a.html", None)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bcmdist\[plot\]'"):
        report(model, test, tmp_path / "a.html", None)


@pytest.mark.slow
def test_the_command(parts, tmp_path):
    train, test = parts("regression")
    GBCM.fit(train, Settings(**QUICK), model=str(tmp_path / "m"))
    command = ["report", str(tmp_path / "m"), test, "--serial", "--out", str(tmp_path / "r.html")]
    done = CliRunner().invoke(cli, [*command, "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["report"] == str(tmp_path / "r.html")
    assert figures["scores"]["rmse"] < figures["baselines"]["mean"]["rmse"]
    page = (tmp_path / "r.html").read_bytes()
    done = CliRunner().invoke(cli, command)
    assert "DataExists: output: expected a new path" in done.stderr
    assert (tmp_path / "r.html").read_bytes() == page
    done = CliRunner().invoke(cli, [*command[:-1], str(tmp_path / "s.html")])
    assert "remark 1" in done.output
    assert "None" not in done.output
    refused = CliRunner().invoke(cli, [*command[:-1], "r.txt"])
    assert refused.exit_code == 1
    assert "InvalidOption: report: expected a file whose name ends in .html, got r.txt" in refused.stderr


# --- Pieces ---


def test_texts_are_escaped_and_numbers_readable():
    assert page.text("<a href='x'>\n\x1b[1m") == "&lt;a href=&#x27;x&#x27;&gt;  [1m"
    assert [page.text(v) for v in (None, float("nan"), -1.5, 1234567.0, 3, float("inf"))] == [
        "&ndash;",
        "&ndash;",
        "&minus;1.5",
        "1,234,567",
        "3",
        "∞",
    ]


def test_groups_hold_every_row_once(rng):
    found = groups(rng.standard_normal(103))
    assert sorted(np.concatenate(found).tolist()) == list(range(103))
    assert {len(group) for group in found} == {10, 11}
    assert len(groups(np.arange(3.0))) == 3


def test_remarks_on_boosted_trees():
    trees = {"mean": {"rmse": 3.0}, "boosted trees": {"rmse": 1.9}}
    found = remarks.of_better_trees({"rmse": 2.0}, trees, 1000)
    assert found.startswith("boosted trees learned from 1,000 of the training rows predict a little better: the root")
    assert remarks.of_better_trees({"rmse": 4.0}, trees, None).endswith("may not suit a Gaussian process")
    assert remarks.of_better_trees({"rmse": 1.91}, trees, 1000) is None  # as good
    assert remarks.of_better_trees({"rmse": 2.0}, trees, 1000, margin=0.1) is None
    assert remarks.of_better_trees({"rmse": 2.0}, {}, 1000) is None
    assert remarks.of_better_baselines({"rmse": 2.0}, trees) is None  # trees are no simple baseline
    assert "(mean)" in remarks.of_baselines({"rmse": 2.0}, trees)


def test_trees_are_named_after_a_simple_baseline_only_if_they_are_far_better():
    near, far = ({"mean": {"rmse": 1.0}, "boosted trees": {"rmse": value}} for value in (0.9, 0.7))
    simple, trees = remarks.of_better_models({"rmse": 1.0}, near, 10)
    assert simple.startswith("no better than a simple baseline")
    assert trees is None
    assert "trees" in remarks.of_better_models({"rmse": 1.0}, far, 10)[1]
    assert remarks.of_better_models({"rmse": 0.95}, near, 10)[0] is None
    assert remarks.of_better_models({"rmse": 0.95}, near, 10)[1].startswith("boosted trees learned from 10 of")


def test_remarks_on_baselines():
    worse = remarks.of_better_baselines({"rmse": 2.0}, {"mean": {"rmse": 3.0}, "nearest neighbours": {"rmse": 1.0}})
    assert worse.startswith("worse than a simple baseline")
    assert "(nearest neighbours)" in worse
    assert remarks.of_better_baselines({"rmse": 1.0}, {"mean": {"rmse": 1.01}}).startswith("no better than a simple")
    assert remarks.of_baselines({"log_loss": 0.5}, {"mean": {"log_loss": 1.0}}).endswith("50% less")
    for remark in (remarks.of_baselines, remarks.of_better_baselines):
        assert remark({"rmse": 1.0}, {}) is None
    assert remarks.of_baselines({"rmse": 1.0}, {"mean": {"rmse": 1.01}}) is None
    assert remarks.of_better_baselines({"rmse": 1.0}, {"mean": {"rmse": 1.1}}) is None


def test_remarks_on_targets_that_are_cut_off(rng):
    y = np.minimum(rng.standard_normal(1000), 1.5)
    assert "6.4% of targets are the largest one, 1.5" in remarks.of_capped_targets(
        np.append(y[y < 1.5][:936], [1.5] * 64)
    )
    assert remarks.of_capped_targets(rng.standard_normal(1000)) is None
    assert remarks.of_capped_targets(rng.integers(0, 5, 1000).astype(float)) is None
