import json

import msgspec
import pytest

from bcmdist.committee.facts import (
    RECORDS,
    REPORTS,
    Cells,
    Facts,
    Learning,
    Linearisation,
    QuerySize,
    Survey,
    declare_report,
)
from bcmdist.data.registry import load_plugins
from bcmdist.errors import InvalidOption, ModelDamaged

load_plugins()  # whose methods declare reports

BARE = Facts(
    job="job",
    seconds={"survey": 0.5},
    survey=Survey("0" * 64, 100),
    learning=Learning({"se": -1.5}, ["noise"]),
    query=QuerySize(50),
    linearisation=Linearisation("laplace", "own"),
)
FULL = {
    "passes": [{"pass": 1}, {"pass": 2, "change": 0.25, "log_evidence": -10.0, "halvings": 0}],
    "data": "a.zarr",
    "evaluations": 7,
    "unfinished": {"seconds": 10.0, "steps": ["other kernels"], "gain_per_second": 2.0},
    "method": "local",
    "expert": "fitc",
    "fading": {"source": "stream", "position": 70, "half_life": 10.0, "window": None},
    "skipped": ["b.zarr/X[0:3]"],
    "update": {
        "commit": 3,
        "form": "kalman",
        "rows": 40,
        "measurements": 25,
        "innovation": 1.25,
        "gain": 0.25,
        "rounding": 0.0,
    },
    "cells": {"core": 80, "around": 700, "array": "cells.zarr/X", "edges": "e" * 64, "border_jump": 0.01},
    "calibration": {"slope": 1.0, "bias": [0.0, 0.5], "rows": 100},
    "local_calibration": {"slope": 1.5, "bias": [0.0, 0.5]},
    "recalibration": {"slope": 1.5, "intercept": 0.5, "rows": 100, "linearised_at": "d" * 64},
    "chunks": "c" * 64,
    "linearised_at": "d" * 64,
    "objective": -3.0,
    "withdrawn_error": 0.125,
    "degrees_estimated": 12.5,
    "settled": {"noise": 2.0},
    "decisions": [
        {"of": "mean", "taken": "linear", "judge": "evidence", "over": {"constant": {"nats": 3.0, "error": None}}}
    ],
    "companions": ["weight"],
    "between_partitions": 0.75,
    "look": ["240 rows, 2 inputs"],
    "ranges": [[-2.0, 2.0], [0.0, 1.5]],
    "expected": {"partitions": 2, "surprise": 0.0, "dispersion": 1.0, "samples": 4, "figures": [0.5]},
    "accuracy": {
        "rows": 100,
        "absorbed": 300,
        "loss": "rmse",
        "model": 0.5,
        "baselines": {"mean": 1.0},
        "learned_from": 200,
    },
    "halving_loss": {"nats": 0.1, "error": 0.02},
    "query_most": 700,
    "refits": 2,
    "repeats": {"share": 0.5, "deviation": 0.1},
    "labels": {"X[1]": 20},
    "whole_targets": 7,
    "noise": "varying",
    "spread": {
        "rows": 300,
        "gain": 0.1,
        "gain_error": 0.02,
        "process": {
            "points": [[0.0, 1.0]],
            "variance": 1.0,
            "lengthscale": [1.0, 2.0],
            "low": [0.0, 0.5],
            "high": [1.0, 1.5],
        },
        "gaps": {"inputs": [0], "thresholds": [0.5]},
    },
    "left_out_ratio": 1.5,
    "trained_errors": {
        "rows": 120,
        "weights": [0.75, 0.25],
        "scales": [0.5, 2.0],
        "means": [0.0, 0.0],
        "scale": {
            "process": {"points": [[0.5, -1.0]], "variance": 0.4, "lengthscale": [1.0, 2.0], "low": None, "high": None},
            "mean": [0.3, 0.1],
            "level": 0.2,
            "gain": 0.05,
            "gain_error": 0.02,
        },
    },
    "networks": {"rows": 300, "log_evidence": [-12.5], "noise_variance": [0.1], "evaluations": [40]},
    "deep": {
        "rows": 270,
        "left_out": 30,
        "evaluations": 110,
        "density": -0.5,
        "powers": [1.0],
        "units": [8],
        "energies": [-80.5],
        "densities": [-0.5],
        "sites": [{"sweeps": 4, "energy": None, "moved": 0.01, "skipped": 0.0, "density_tied": -0.75}],
    },
    "input_errors": {"rows": 300, "noise_seen": 0.25, "densities": [-0.5, None], "beginnings": [-2.5, None]},
    "lag": {"stream": {"partitions": 2, "rows": 20, "seconds": 1.5, "at": 1.8e9}},
    "of a later version": [1],
}


def test_facts_come_back_from_json():
    """A fact that is not written, or not read, is lost here."""
    flat = BARE.to_json() | FULL
    assert json.loads(json.dumps(Facts.from_json(flat).to_json())) == flat
    assert Facts.from_json(BARE.to_json()) == BARE


DAMAGED = [
    ("networks", {"noise_variance": [0.0]}),
    ("networks", {"rows": None}),
    ("deep", {"evaluations": -1}),
    ("deep", {"sites": [{"sweeps": 4}]}),
    ("input_errors", {"densities": ["high"]}),
]


@pytest.mark.parametrize(("name", "change"), [one for one in DAMAGED if one[0] in REPORTS])
def test_reports_of_methods_are_checked(name, change):
    flat = BARE.to_json() | FULL
    with pytest.raises(ModelDamaged, match=f"expected .* {name}"):
        Facts.from_json(flat | {name: flat[name] | change})


def test_reports_have_names_of_their_own():
    with pytest.raises(InvalidOption, match="report: expected a name of its own, 'seconds' is that of another fact"):
        declare_report("seconds", Survey)


def test_every_fact_is_among_the_full_ones():
    named = {name for kind in RECORDS.values() for name in kind.__struct_encode_fields__}
    assert named <= (BARE.to_json() | FULL).keys()


def test_no_two_records_have_a_field_of_the_same_name():
    names = [field.encode_name for kind in RECORDS.values() for field in msgspec.structs.fields(kind)]
    assert len(set(names)) == len(names)


def test_what_is_not_known_is_not_written():
    assert [name for name, value in BARE.to_json().items() if value is None] == []
    assert BARE.to_json()["passes"] == []


def test_null_is_as_good_as_nothing():
    facts = BARE.to_json() | {"objective": None, "calibration": None, "fading": None, "cells": None}
    assert Facts.from_json(facts) == BARE
    assert not Facts.from_json(facts).cells.surrounded


def test_changed_facts_are_decoded():
    changed = BARE.changed(calibration={"slope": 1, "bias": [0]}, cells=Cells(core=80), skipped=("x",))
    assert (changed.errors.calibration.bias, changed.cells.core, changed.ingestion.skipped) == ([0.0], 80, ["x"])
    assert changed.changed(calibration=None, cells=Cells(), skipped=()) == BARE


def test_a_fact_that_there_is_not():
    with pytest.raises(TypeError, match="calibrated"):
        BARE.changed(calibrated={})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"rows_per_expert": 0}, "expected a whole number >= 1 as rows_per_expert, found 0"),
        ({"rows_per_expert": 2**63}, "as rows_per_expert, found 9223372036854775808"),
        ({"rows_per_expert": True}, "expected a whole number as rows_per_expert, found True"),
        ({"objective": float("nan")}, "expected a number .* as objective, found nan"),
        ({"objective": float("inf")}, "expected a number .* as objective, found inf"),
        ({"objective": 10**400}, "as objective, found 1000"),
        ({"passes": [{"pass": 1}, {}]}, r"expected a field pass in passes\[1\], found nothing"),
        ({"surveyed": "0" * 64 + "\n"}, "as surveyed, found '000"),
        ({"surveyed": None}, "expected a field surveyed, found nothing"),
        ({"linearise": "both"}, "expected a known name as linearise, found 'both'"),
        ({"calibration": []}, r"expected an object or null as calibration, found \[\]"),
        ({"seconds": {"survey": 1, "learn": -1, "errors": -2}}, "expected a number >= 0.0 as seconds.learn, found -1"),
        ({"decisions": [{"of": "mean"}]}, r"expected a field taken in decisions\[0\], found nothing"),
    ],
)
def test_facts_that_cannot_be_are_named(changed, named):
    with pytest.raises(ModelDamaged, match=f"here: .*{named}"):
        Facts.from_json(BARE.to_json() | changed, "here")
