"""Tasks of learning carry kernel and likelihood as themselves."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.learning.evidence.committee_tasks import Trial, TrialMessage
from bcmdist.learning.evidence.local_tasks import LocalEvidence
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.scaling import Scaling, scaling_to_array
from bcmdist.runtime.interface import SerialRuntime
from bcmdist.storage.commits import open_store

KERNEL = parse_kernel("matern52", inputs=2)
LIKELIHOOD = make_likelihood("gaussian")


@pytest.fixture
def references(tmp_path):
    """Of a scaling and of query points, which are the same on every worker."""
    scaling = Scaling(np.zeros(2), np.ones(2), 3.0, 2.0)
    arrays = {"scaling": scaling_to_array(scaling), "points": np.random.default_rng(1).standard_normal((9, 2))}
    with open_store(str(tmp_path / "model")).transient(arrays) as references:
        yield references


@pytest.fixture
def trial(references):
    return Trial(**references, jitter=0.0, mean="constant", classes=None, kernel=KERNEL, likelihood=LIKELIHOOD)


def sent(task):
    """As a worker gets it."""
    return pickle.loads(pickle.dumps(task))


@pytest.mark.parametrize("name", ["gaussian", "student_t", "negative_binomial", "weibull"])
def test_kernel_and_likelihood_take_some_hundred_bytes(name):
    assert len(pickle.dumps((KERNEL, make_likelihood(name)))) < 800


def test_a_task_computes_the_same_where_it_arrives(wave, references, trial):
    parts = partitions(open_data(wave[0]), 60)
    for task in (LocalEvidence(references["scaling"], KERNEL, "constant", LIKELIHOOD, None), TrialMessage(trial)):
        here, there = (SerialRuntime().sum(one, parts, label="learn") for one in (task, sent(task)))
        if isinstance(task, LocalEvidence):
            assert (here.value, here.failures) == (there.value, 0)
            np.testing.assert_array_equal(here.gradient, there.gradient)
        else:
            np.testing.assert_array_equal(here.message.precision, there.message.precision)


def test_a_query_set_is_prepared_once_for_all_tasks_of_a_trial(trial):
    """Copies are equal by what they say, and not by which objects they are."""
    query = sent(trial).query()
    assert sent(trial).query() is query
    other = replace(trial, likelihood=make_likelihood("student_t"))
    assert other.query() is query


@pytest.mark.parametrize(
    "kernel",
    [
        parse_kernel("matern32", inputs=2),  # the same numbers
        KERNEL.isotropic(),  # the same function
        KERNEL.with_parameters({"variance": np.nextafter(KERNEL.variance, 2.0)}),  # another in the last bit
    ],
    ids=["name", "sizes", "bit"],
)
def test_another_kernel_has_a_query_set_of_its_own(kernel, trial):
    query, other = trial.query(), replace(trial, kernel=kernel).query()
    assert other is not query
    assert other.kernel is kernel
