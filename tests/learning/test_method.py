"""A method of a user's own: its hooks are called, and its capabilities and defaults are heeded."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, Settings, register_method
from bcmdist.errors import InvalidOption
from bcmdist.learning.experts import EXPERTS, query_values
from bcmdist.learning.method import Capabilities, Defaults, Method, Training, left_out_errors

NOISE = 0.25


class Doubting(Method):
    """Values at query points whose training sets the noise."""

    residual = "diagonal"
    capabilities = Capabilities(kernels=("matern32",), likelihoods=("gaussian",), mean=False, running=False)
    defaults = Defaults(kernel="matern32", rows=80)
    training = Training(memorises=True)

    def shared(self, known):
        return query_values(known)

    def train(self, shared, likelihood, context):
        return shared, likelihood.with_parameters({"noise_variance": np.array([NOISE])})

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
