"""A method of a user's own: its hooks are called, and its capabilities and defaults are heeded."""

from dataclasses import asdict, dataclass, replace
from typing import Annotated

import click
import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings, register_method
from bcmdist.api.request_json import from_json, to_json
from bcmdist.api.requests import FitRequest
from bcmdist.app.cli.main import cli
from bcmdist.errors import InvalidOption
from bcmdist.learning.experts import EXPERTS, query_values
from bcmdist.learning.first_commit import _job
from bcmdist.learning.method import Capabilities, Defaults, Method, Training, left_out_errors
from bcmdist.learning.method_options import declare_options
from bcmdist.storage.bounds import Bounds

NOISE = 0.25


@dataclass(frozen=True)
class Doubts:
    """Options of the method."""

    doubt: Annotated[float, "SHARE", Bounds(0.0, 10.0)] = 1.0
    """factor of the noise"""


class Doubting(Method):
    """Values at query points whose training sets the noise."""

    residual = "diagonal"
    options = Doubts
    capabilities = Capabilities(kernels=("matern32",), likelihoods=("gaussian",), mean=False, running=False)
    defaults = Defaults(kernel="matern32", rows=80)
    training = Training(memorises=True)

    def shared(self, known):
        return query_values(known)

    def train(self, shared, likelihood, context):
        return shared, likelihood.with_parameters({"noise_variance": np.array([NOISE * context.options.doubt])})

    def refuse(self, settings, likelihood):
        if settings.effort == "thorough":
            raise InvalidOption("effort: expected quick or normal, got thorough")

    def refuse_data(self, settings, kernel, inputs, rows):
        if rows > 1000:
            raise InvalidOption(f"expected at most 1000 rows with {kernel}, got {rows} of {inputs} inputs")


@pytest.fixture(autouse=True, scope="module")
def doubting():
    return register_method(Doubting("toy_doubting"))


def asked(**changes):
    return Settings(expert="toy_doubting", **{"query": 20, "learn": False} | changes)


def test_a_fit_uses_its_defaults_and_training(wave):
    gbcm = GBCM.fit(wave[0], asked())
    assert (gbcm.model.kernel_name, gbcm.model.shared.mean.name) == ("matern32", "zero")
    assert gbcm.model.likelihood.parameters["noise_variance"].tolist() == [NOISE]
    assert asked().rows_per_expert == 80
    assert len(gbcm.ledger) == len(range(0, 240, 80))
    assert gbcm.info()["rows"] == 240


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": "se"}, "kernel: expected matern32 with the expert toy_doubting, got se"),
        ({"likelihood": "student_t"}, "likelihood: expected gaussian with the expert toy_doubting, got student_t"),
        ({"mean": "linear"}, "mean: expected auto or zero with the expert toy_doubting, got linear"),
        ({"linearise": "running"}, "linearise: expected own with toy_doubting, got running"),
        ({"partition": "spatial"}, "expert: expected bcm or .* with spatial partitions, .* got toy_doubting"),
        ({"objective": "committee", "learn": True}, "expert: expected bcm with the objective committee"),
        ({"units": 3}, "units: expected the expert .* with it, got toy_doubting"),
        ({"effort": "thorough"}, "effort: expected quick or normal, got thorough"),
    ],
)
def test_what_it_cannot_be_combined_with_is_refused(changes, message):
    with pytest.raises(InvalidOption, match=message):
        asked(**changes)


# --- Options of its own ---


def test_an_option_reaches_the_method(wave):
    gbcm = GBCM.fit(wave[0], asked(doubt=3.0))
    assert gbcm.model.likelihood.parameters["noise_variance"].tolist() == [3 * NOISE]


def test_an_option_is_part_of_settings():
    settings = asked(doubt=3.0)
    assert (settings.doubt, asked().doubt, Settings().doubt) == (3.0, 1.0, 1.0)
    assert settings.of(Doubts) == Doubts(3.0)
    assert settings == asked(options={"doubt": 3.0}) != asked()
    assert asked(doubt=1.0) == asked()
    assert replace(settings, doubt=1.0) == asked()
    assert replace(settings, seed=1).doubt == 3.0
    assert "doubt" not in asked().flat()
    assert settings.flat() == asked().flat() | {"doubt": 3.0}
    request = FitRequest("d", "m", settings)
    assert to_json(request)["settings"]["doubt"] == 3.0
    assert from_json(to_json(request)) == request


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"doubt": 11.0}, "doubt: expected at most 10.0, got 11.0"),
        ({"expert": "bcm", "doubt": 2.0}, "doubt: expected the expert toy_doubting with it, got bcm; leave it out, or"),
        ({"dout": 2.0}, r"dout: expected a field of Settings or an option of a method \(.*doubt.*\), got another name"),
    ],
)
def test_an_option_is_checked_as_a_field(given, message):
    with pytest.raises(InvalidOption, match=message):
        Settings(**{"expert": "toy_doubting"} | given)
    with pytest.raises(InvalidOption, match=message):
        replace(asked(), **given)


def test_an_option_is_one_of_the_command_line(wave, tmp_path):
    help_ = " ".join(CliRunner().invoke(cli, ["fit", "--help"]).output.split())
    assert "--doubt SHARE Factor of the noise. [default: 1.0]" in help_
    words = ["fit", wave[0], "--model", str(tmp_path / "m"), "--serial", "--expert", "toy_doubting", "--no-learn"]
    done = CliRunner().invoke(cli, [*words, "--doubt", "3"])
    assert done.exit_code == 0, done.output
    assert GBCM.load(tmp_path / "m").model.likelihood.parameters["noise_variance"].tolist() == [3 * NOISE]
    (tmp_path / "fit.toml").write_text("doubt = 11.0")
    done = CliRunner().invoke(cli, [*words, "--config", str(tmp_path / "fit.toml")])
    assert "doubt: expected at most 10.0, got 11.0" in done.stderr
    options = {name for p in cli.commands["submit"].commands["fit"].get_params(click.Context(cli)) for name in p.opts}
    assert "--doubt" in options


def test_what_declares_an_option_must_agree():
    @dataclass(frozen=True)
    class Seeds:
        seed: int = 3

    @dataclass(frozen=True)
    class Bare:
        bare: int

    @dataclass(frozen=True)
    class Other:
        doubt: float = 2.0

    with pytest.raises(InvalidOption, match="seed: expected a name that no option of all fits has, got seed"):
        declare_options("toy_doubting", Seeds)
    with pytest.raises(InvalidOption, match="bare: expected a default in Bare, got none"):
        declare_options("toy_doubting", Bare)
    with pytest.raises(InvalidOption, match="doubt: expected the type and default that it has with toy_doubting"):
        declare_options("toy_other", Other)
    assert set(asdict(asked())["options"]) == set()


# First digits of the hashes of fits that were begun before methods had options of their own.
JOBS = [
    ({}, "ec101af144ff"),
    ({"expert": "dgp", "layers": 3}, "e61a757e5934"),
    (
        {"expert": "dgp", "layers": 2, "units": 8, "deep_sites": "row"},
        "948e9a67c052",
    ),
    (
        {"expert": "mnnmix", "networks": 4, "units": 20},
        "17a1bcd46086",
    ),
    (
        {"expert": "fourier", "tolerance": 0.001, "partition": "spatial"},
        "9e56fafd07eb",
    ),
    (
        {"expert": "rvm", "rvm_update": "em", "rvm_dictionary": 70},
        "a7f246aef0d8",
    ),
    ({"noisy_inputs": "hmc", "query": 30}, "839ed7f28a8e"),
]


class Rows:
    """A data set that nobody reads."""

    url, x, y = "file:///d.zarr", "X", "y"


@pytest.mark.parametrize(("given", "job"), JOBS)
def test_jobs_of_before_are_resumed(given, job, monkeypatch):
    monkeypatch.setattr("bcmdist.learning.first_commit.describe", lambda *_: "described")
    assert _job(Rows, Settings(**{"partition": "chunks"} | given))[:12] == job


# --- Data ---


def test_data_are_refused_before_learning(make_data):
    path = make_data(X=np.ones((1001, 2)), y=np.ones(1001))
    with pytest.raises(InvalidOption, match="expected at most 1000 rows with matern32, got 1001 of 2 inputs"):
        GBCM.fit(path, asked(rows_per_expert=500))


def test_rows_that_it_memorises_show_no_errors():
    method = EXPERTS["toy_doubting"]
    assert left_out_errors(method, asked())
    assert not left_out_errors(method, replace(asked(), learn=True))


def test_names_and_residuals_are_checked():
    with pytest.raises(InvalidOption, match="expert: expected a name of its own, 'bcm' is that of"):
        register_method(Doubting("bcm"))

    class Unknown(Doubting):
        residual = "some"

    with pytest.raises(InvalidOption, match=r"residual: expected one of none, diagonal, block, .*got 'some'"):
        register_method(Unknown("toy_unknown"))
