"""Options of the command line are the fields of requests and settings: their names, defaults, choices and texts."""

from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

import click
import pytest
from click.testing import CliRunner

from bcmdist import Settings
from bcmdist.api.requests import FitRequest, IngestRequest, PredictRequest, ScoreRequest, request_of
from bcmdist.app.cli.fields import options_of
from bcmdist.app.cli.main import cli
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.learning.hyperparameters import AUTO_MEAN
from bcmdist.learning.option_fields import choices_of, fits, hints_of, texts_of, words
from bcmdist.learning.query_selection import QUERY_METHODS
from bcmdist.learning.search import EFFORTS
from bcmdist.model.kernels import KERNELS
from bcmdist.model.likelihoods import LIKELIHOODS
from bcmdist.model.mean import MEAN_NAMES


@dataclass(frozen=True)
class Wind:
    """A dataclass within another one."""

    knots: Annotated[float | None, "KNOTS"] = None
    """how strong it
    blows"""
    from_: str = "west"
    """where from"""


@dataclass(frozen=True)
class Sail:
    """One field of each kind."""

    boat: str
    """which boat"""
    harbour: Annotated[str, "NAME"]
    """where to"""
    wind: Wind = field(default_factory=Wind)
    crew: int = 2
    """how many sail"""
    rig: Literal["gaff", "sloop"] = "sloop"
    """what they sail"""
    sails: int | Literal["all"] | None = None
    """how many are set"""
    reefs: Annotated[dict[str, float | list[float]], "NAME=VALUE"] = field(default_factory=dict)
    """rows of each sail"""
    anchor: bool = True
    """take it along"""
    night: bool = False
    """also in the dark"""
    ropes: Literal["hemp", "wire"] | str | None = None
    """of what, or of what others sell"""
    motor: bool | None = None
    """run it; by default without wind"""


@click.command()
@options_of(Sail, arguments=("boat",), crew={"help": "Hands."})
def sail(**options):
    print(request_of(Sail, options))


def sailed(*words):
    return CliRunner().invoke(sail, list(words))


def test_fields_are_options():
    words = "ketch --harbour Kiel --knots 3 --crew 4 --rig gaff --sails 2 --reefs jib=1,2 --reefs main=3 --no-anchor"
    expected = Sail("ketch", "Kiel", Wind(3.0), 4, "gaff", 2, {"jib": [1.0, 2.0], "main": 3.0}, False, True)
    assert sailed(*words.split(), "--night").output == f"{expected}\n"
    assert sailed("ketch", "--harbour", "Kiel", "--sails", "all").output == f"{Sail('ketch', 'Kiel', sails='all')}\n"
    assert sailed("ketch", "--harbour", "Kiel", "--no-motor").output == f"{Sail('ketch', 'Kiel', motor=False)}\n"


def test_choices_to_which_others_may_add():
    """Who knows the others says whether there is one."""
    expected = Sail("ketch", "Kiel", ropes="nylon")
    assert sailed("ketch", "--harbour", "Kiel", "--ropes", "nylon").output == f"{expected}\n"
    assert "--ropes [hemp|wire|NAME]" in sailed("--help").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ketch", "Missing option '--harbour'"),
        ("--harbour Kiel", "Missing argument 'BOAT'"),
        ("ketch --harbour Kiel --rig brig", "'brig' is not one of 'gaff', 'sloop'"),
        ("ketch --harbour Kiel --sails some", "expected a whole number or all, got 'some'"),
        ("ketch --harbour Kiel --crew 1.5", "'1.5' is not a valid integer"),
        ("ketch --harbour Kiel --reefs jib", "expected NAME=NUMBER"),
    ],
)
def test_other_values_are_refused(words, said):
    done = sailed(*words.split())
    assert done.exit_code == 2
    assert said in done.stderr


def test_texts_are_help():
    help_ = " ".join(sailed("--help").output.split())
    assert "--knots KNOTS How strong it blows. --from- TEXT Where from. [default: west]" in help_
    assert "--harbour NAME Where to. [required] --knots" in help_
    assert "--crew INTEGER Hands. [default: 2]" in help_
    assert "--rig [gaff|sloop] What they sail. [default: sloop]" in help_
    assert "--anchor / --no-anchor Take it along. [default: anchor]" in help_


@pytest.mark.parametrize("kind", [Settings, IngestOptions, FitRequest, IngestRequest, PredictRequest, ScoreRequest])
def test_every_field_has_a_text(kind):
    missing = set(hints_of(kind)) - set(texts_of(kind))
    assert missing <= {"settings", "table"}  # which have texts of their own
    assert all(text for text in texts_of(kind).values())


def test_a_default_is_of_its_type():
    for kind in (Settings, IngestOptions):
        made = kind()
        wrong = [
            f.name
            for f in fields(kind)
            if f.name in hints_of(kind) and not fits(getattr(made, f.name), hints_of(kind)[f.name])
        ]
        assert wrong == []


def test_types_in_words():
    hints = hints_of(Sail)
    assert words(hints["sails"]) == 'a whole number or "all" or null'
    assert not fits(True, hints["crew"])
    assert fits(3, hints_of(Wind)["knots"])
    assert not fits({"jib": "1"}, hints["reefs"])


# --- The choices are those that there are ---


def test_choices_are_those_of_the_rooms():
    hints = hints_of(Settings)
    assert set(choices_of(hints["task"])) == {LIKELIHOODS[name].task for name in ours(LIKELIHOODS)}
    assert set(choices_of(hints["mean"])) == {*MEAN_NAMES, AUTO_MEAN}
    assert set(choices_of(hints["query_method"])) == set(QUERY_METHODS)
    assert set(choices_of(hints["effort"])) == set(EFFORTS)


def ours(registry):
    """Names that are not added by other tests."""
    return {name for name in registry if registry[name].__module__.startswith("bcmdist.")}


def test_help_names_every_likelihood_and_kernel():
    texts = texts_of(Settings)
    named = texts["likelihood"].replace(";", " ").split()
    assert ours(LIKELIHOODS) <= set(named)
    kernels = texts["kernel"].partition(", or")[0].removeprefix("by name: ").split()
    assert set(kernels) == ours(KERNELS)


@pytest.mark.parametrize(
    ("option", "registry"),
    [("--likelihood", "gaussian"), ("--expert", "bcm")],
)
def test_a_name_that_nobody_has_added_is_refused_with_those_there_are(option, registry):
    done = CliRunner().invoke(cli, ["fit", "d", "--model", "m", option, "nobodys"])
    assert done.exit_code == 1
    assert f"InvalidOption: {option.removeprefix('--')}: expected one of {registry}, " in done.stderr
    assert "got 'nobodys'" in done.stderr


NAMES_OF_BEFORE = {
    "fit": "model config task likelihood kernel mean query query-method rows-per-expert passes approximation linearise "
    "partition learn set hyperparameters samples chains objective effort seed x y prepare-only plan scheduler workers "
    "serial json",
    "ingest": "watch max-partitions commit-every half-life window keep on-error same-rows take-over scheduler workers "
    "serial json",
    "predict": "out method x exposure trials id scheduler workers serial json",
    "score": "method x y picture scheduler workers serial json",
}


@pytest.mark.parametrize("command", NAMES_OF_BEFORE)
def test_no_option_is_lost(command):
    known = {name.removeprefix("--") for p in cli.commands[command].params for name in p.opts if name.startswith("--")}
    assert set(NAMES_OF_BEFORE[command].split()) <= known
