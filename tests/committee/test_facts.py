import json
from dataclasses import fields, replace

import pytest

from bcmdist.committee.facts import Cells, Facts, Pass
from bcmdist.committee.fading import Weighting

BARE = Facts("job", "surveyed", "laplace", "own", 100, 50, {"se": -1.5}, ["noise"], {"survey": 0.5})
FULL = replace(
    BARE,
    passes=(Pass(1), Pass(2, 0.25, -10.0, 0), Pass(3, 1e-4, None, 1)),
    data="a.zarr",
    evaluations=7,
    method="local",
    expert="fitc",
    fading=Weighting("stream", 70, half_life=10.0),
    skipped=("b.zarr/X[0:3]",),
    cells=Cells(80, 700, "cells.zarr/X", "e" * 64, "f" * 64, 0.01),
    calibration={"slope": 1.0, "bias": [0.0, 0.5], "rows": 100},
    local_calibration={"slope": 1.5, "bias": [0.0, 0.5]},
    recalibration={"slope": 1.5, "intercept": 0.5, "rows": 100, "linearised_at": "d" * 64},
    chunks="c" * 64,
    linearised_at="d" * 64,
    objective=-3.0,
    withdrawn_error=0.125,
    degrees_estimated=12.5,
    settled={"noise": 2.0},
    decisions=[
        {"of": "mean", "taken": "linear", "judge": "evidence", "over": {"constant": {"nats": 3.0, "error": None}}}
    ],
    companions=("weight",),
    between_partitions=0.75,
    expected={"partitions": 2, "surprise": 0.0, "dispersion": 1.0, "samples": 4, "figures": [0.5]},
    halving_loss={"nats": 0.1, "error": 0.02},
    repeats={"share": 0.5, "deviation": 0.1},
    labels={"X[1]": 20},
    whole_targets=7,
    noise="varying",
    spread={"rows": 300, "gain": 0.1, "gain_error": 0.02, "process": None},
    networks={"rows": 300, "log_evidence": [-12.5], "noise_variance": [0.1], "evaluations": [40]},
    deep={"rows": 270, "left_out": 30, "energy": -80.5, "density": -0.5, "evaluations": 110},
    input_errors={"rows": 300, "noise_seen": 0.25, "densities": [-0.5, None], "beginnings": [-2.5, None]},
    lag={"stream": {"partitions": 2, "rows": 20, "seconds": 1.5, "at": 1.8e9}},
    other={"of a later version": [1]},
)


@pytest.mark.parametrize("facts", [BARE, FULL], ids=["bare", "full"])
def test_facts_come_back_from_json(facts):
    assert Facts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_every_fact_is_among_the_full_ones():
    assert [field.name for field in fields(Facts) if getattr(FULL, field.name) is None] == []
    assert [field.name for field in fields(Facts) if getattr(FULL, field.name) == getattr(Facts, field.name, "")] == []


def test_what_is_not_known_is_not_written():
    assert {name for name, value in BARE.to_json().items() if value is None} == {"cells", "fading"}
    assert BARE.to_json()["passes"] == []
    assert FULL.to_json()["passes"][:2] == [
        {"pass": 1},
        {"pass": 2, "change": 0.25, "log_evidence": -10.0, "halvings": 0},
    ]


def test_null_is_as_good_as_nothing():
    facts = BARE.to_json() | {"objective": None, "calibration": None, "fading": None, "cells": None}
    assert Facts.from_json(facts) == BARE
    assert not Facts.from_json(facts).cells.surrounded


def test_a_fact_that_there_is_not():
    with pytest.raises(TypeError, match="calibrated"):
        BARE.changed(calibrated={})
