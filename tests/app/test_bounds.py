"""Every numeric option has bounds, which its error states; what lies within them gives a model that can be read."""

import math
from dataclasses import MISSING, fields
from typing import get_args

import click
import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist.api.gbcm import GBCM
from bcmdist.api.request_json import from_json
from bcmdist.api.requests import REQUESTS
from bcmdist.app.cli.main import cli
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.errors import BcmdistWarning, InvalidOption, InvalidRequest
from bcmdist.learning.experts import experts
from bcmdist.learning.method_options import method_options, option_kinds
from bcmdist.learning.option_fields import has_fields, hints_of, types_of
from bcmdist.learning.settings import Settings
from bcmdist.runtime.portion import Portion
from bcmdist.storage.bounds import declared_bounds

EXTREMES = [2**63, -(2**63), 2**53 + 1, math.nan, math.inf, -math.inf, -1, -1e308, 1e308, 1.5, True]
# Checked by themselves, with bounds in the error: see the tests below.
OTHERWISE = {"tolerance": "from 1e-09 to 1"}
OF_A_CLUSTER = {"share", "workers"}


def dataclasses_of(kind):
    """A request, and the dataclasses in it."""
    yield kind
    for hint in hints_of(kind).values():
        if has_fields(hint):
            yield from dataclasses_of(hint)


OPTIONS = {one.__name__: one for kind in REQUESTS.values() for one in dataclasses_of(kind)}
METHODS = {kind.__name__: kind for option in method_options().values() for kind in option.kinds}
OPTIONS |= METHODS
EXPERTS_OF = {kind.__name__: expert for expert in experts() for kind in option_kinds(expert)}


def types_in(hint):
    """Types of a field, and of the entries of lists."""
    return {one for kind in types_of(hint) for one in (kind, *get_args(kind))}


NUMBERS = [
    (name, field.name)
    for name, kind in OPTIONS.items()
    for field in fields(kind)
    if field.name in hints_of(kind) and {int, float} & types_in(hints_of(kind)[field.name])
]


def made(kind, **values):
    """Options with some values, those of a method in settings of its expert; a request with names of places."""
    if kind in METHODS.values():
        return Settings(expert=EXPERTS_OF[kind.__name__], **values)
    required = {one.name: 1 for one in fields(kind) if one.default is one.default_factory is MISSING}
    return kind(**required | {place: place for place in getattr(kind, "places", ())} | values)


def test_there_are_numbers():
    assert len(NUMBERS) > 12


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_every_number_of_a_request_has_bounds(kind, name):
    assert name in declared_bounds(OPTIONS[kind]) or name in OTHERWISE


def outside(kind, name, value):
    """Whether a value lies outside of the bounds of a field, or is no number of its kind."""
    bounds = declared_bounds(OPTIONS[kind])[name]
    number = type(value) in (int, float) and not (bounds.whole and value == 1.5)
    return not (number and bounds.least <= value <= bounds.most)


BOUNDED = [one for one in NUMBERS if one[1] not in OTHERWISE]


@pytest.mark.parametrize(
    ("kind", "name", "value"), [(*one, value) for one in BOUNDED for value in EXTREMES if outside(*one, value)]
)
def test_numbers_beyond_their_bounds_are_refused(kind, name, value):
    """By an error that states the bounds, also of a job's JSON."""
    bounds = declared_bounds(OPTIONS[kind])[name]
    with pytest.raises(InvalidOption, match=name.replace("_", "[-_]")) as refused:
        made(OPTIONS[kind], **{name: value})
    assert {str(bounds.least), str(bounds.most)} <= set(str(refused.value).replace(",", " ").replace(";", " ").split())


@pytest.mark.parametrize("value", [0.0, 1.0, -1, 2**63, math.nan, math.inf, 1e308])
def test_tolerances_beyond_their_bounds_are_refused(value):
    with pytest.raises(InvalidOption, match=f"tolerance: .*{OTHERWISE['tolerance']}"):
        Settings(expert="fourier", tolerance=value)


@pytest.mark.parametrize("value", [2**63, 0, -1, math.nan, math.inf, 1.5, True])
def test_portions_beyond_their_bounds_are_refused(value):
    with pytest.raises(InvalidOption, match=r"workers: .* from 1 to 100000"):
        Portion(workers=value)
    with pytest.raises(InvalidOption, match=r"--share: .*above 0 and at most 1"):
        Portion(share=value)


@pytest.mark.parametrize("value", [2**63, 1e308, math.nan, math.inf, -1])
def test_jobs_are_refused_as_commands_are(value):
    found = {"request": "fit", "data": "d", "model": "m", "settings": {"query": value}}
    with pytest.raises((InvalidOption, InvalidRequest), match="query"):
        from_json(found)


@pytest.mark.parametrize("value", [1e-308, 5e-324, 1e308, math.nan, math.inf, -1.0, 0.0])
@pytest.mark.parametrize("name", ["kernel.lengthscale", "kernel.variance", "likelihood.noise_variance"])
def test_hyperparameters_beyond_their_bounds_are_refused(wave, tmp_path, name, value):
    """Before anything overflows or underflows that is made of them."""
    settings = Settings(partition="chunks", query=5, rows_per_expert=60, kernel="se", learn=False, set={name: value})
    with pytest.raises(InvalidOption, match=rf"--set {name}: expected .*from 1e-100 to 1e\+100"):
        GBCM.fit(wave[0], settings, model=tmp_path / "model")


# --- Command lines ---


def numeric_parameters(command, path=()):
    """Each numeric parameter of a command and of those below it, with the words of its command."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from numeric_parameters(below, (*path, name))
        return
    for parameter in command.params:
        kinds = (click.types.IntParamType, click.types.FloatParamType)
        if isinstance(parameter.type, kinds):
            yield path, parameter


OF_FIELDS = {name for _, name in NUMBERS} - {"seed"}
PARAMETERS = [
    pytest.param(parameter, id=f"{' '.join(path)} --{parameter.name}")
    for path, parameter in numeric_parameters(cli)
    if parameter.name not in OF_FIELDS | OF_A_CLUSTER and path[-1] not in ("fit", "ingest")
]


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_every_number_of_a_command_has_bounds(parameter):
    if isinstance(parameter.type, click.IntRange):  # of ports, and of days of certificates
        assert None not in (parameter.type.min, parameter.type.max)
        return
    context = click.Context(click.Command("any"))
    for value in ("9223372036854775808", "-9223372036854775809", "nan", "inf", "-inf", "1e308", "-1e308", "-1"):
        with pytest.raises((InvalidOption, click.UsageError)) as refused:
            parameter.type.convert(value, parameter, context)
        if isinstance(refused.value, InvalidOption):
            assert parameter.opts[0] in str(refused.value)
            assert str(parameter.type.bounds.most) in str(refused.value)


def test_commands_say_which_bounds_hold(wave, tmp_path):
    """In one line, before anything is written."""
    for option, value in (("--query", 2**63), ("--rows-per-expert", -1), ("--seed", 2**32), ("--networks", 10**9)):
        done = CliRunner().invoke(cli, ["fit", wave[0], "--model", str(tmp_path / "model"), option, str(value)])
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert f"InvalidOption: {option[2:].replace('-', '_')}: expected at " in done.stderr
    assert not (tmp_path / "model").exists()


# --- What lies within ---


@pytest.mark.parametrize("value", [1e-100, 1e100])
@pytest.mark.parametrize("name", ["kernel.lengthscale", "kernel.variance", "likelihood.noise_variance"])
def test_the_ends_of_bounds_of_hyperparameters_give_a_model_that_can_be_read(wave, tmp_path, name, value):
    settings = Settings(partition="chunks", query=5, rows_per_expert=60, kernel="se", learn=False, set={name: value})
    GBCM.fit(wave[0], settings, model=tmp_path / "model")
    assert np.isfinite(GBCM.load(tmp_path / "model").predict([[0.0, 0.0]])["mean"]).all()


def test_the_largest_numbers_of_a_fit_give_a_model_that_can_be_read(wave, tmp_path):
    bounds = declared_bounds(Settings)
    largest = {name: bounds[name].most for name in ("query", "rows_per_expert", "seed")}
    model = tmp_path / "model"
    with pytest.warns(BcmdistWarning, match="the data hold 240 distinct rows"):
        GBCM.fit(wave[0], Settings(**largest, learn=False), model=model)
    assert GBCM.load(model).info()["rows"] == 240
    assert np.isfinite(GBCM.load(model).predict([[0.0, 0.0]])["mean"]).all()


@pytest.mark.parametrize("end", ["least", "most"])
def test_the_ends_of_bounds_of_ingestion_give_a_model_that_can_be_read(wave, tmp_path, end):
    bounds = declared_bounds(IngestOptions)
    options = {name: getattr(one, end) + (1e-9 if one.above and end == "least" else 0) for name, one in bounds.items()}
    model = tmp_path / "model"
    prepared = GBCM.prepare(wave[0], Settings(query=5, rows_per_expert=60, learn=False), model=model)
    options["query_most"] = max(options["query_most"], prepared.model.shared.functions)  # fewer are refused
    after, _ = prepared.ingest(prepared.source(wave[0]), IngestOptions(**options))
    assert GBCM.load(model).info()["commit"] == after.commit
