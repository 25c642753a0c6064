"""Predictions averaged over several committees: those of samples of the hyper-parameters.

Williams & Rasmussen (1996), section 3.2: the predictive distribution is an equal mixture of those at sampled
hyper-parameters. Each sample has a committee of its own; mixing over samples inside each expert and combining
afterwards would be wrong (SYSTEMS I.7).
"""

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bcmdist.bcm import GBCM
from bcmdist.dataset import LARGEST_OUTPUT_CHUNK
from bcmdist.errors import InvalidOption, ModelNotFound
from bcmdist.likelihoods import Gaussian, task_of
from bcmdist.partition import aligned_partitions, describe, open_data
from bcmdist.preparation import refuse_large_prediction
from bcmdist.runtime import Runtime
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.store import LocalStorage, record_digest
from bcmdist.tasks.mixing import MixtureScore, mixed, stacked

CONTENTS = "mixture.json"  # names of the members' directories; written when all of them are there


class Stored(Sequence[GBCM]):
    """Committees in model directories, each loaded when it is asked for and not kept."""

    def __init__(self, urls: Sequence[str]):
        self.urls = tuple(urls)

    def __len__(self):
        return len(self.urls)

    def __getitem__(self, k):
        return Stored(self.urls[k]) if isinstance(k, slice) else GBCM.load(self.urls[k])

    def __iter__(self) -> Iterator[GBCM]:
        return (GBCM.load(url) for url in self.urls)


@dataclass(frozen=True)
class Mixture:
    """Committees whose predictions count alike; made by hand, by `load` or by `posterior.sample_posterior`."""

    members: Sequence[GBCM]
    """fitted to the same data with the same settings, but for the hyper-parameters"""
    _keep: tuple = ()

    def __post_init__(self):
        if not self.members:
            raise InvalidOption("mixture: expected at least one committee, got none; fit some")
        refuse_unmixable(self.members[0].model.likelihood)

    @classmethod
    def load(cls, model) -> "Mixture":
        """The mixture of a directory that `sample_posterior` has filled; members are loaded when they are needed.

        Raises
        ------
        ModelNotFound
        """
        try:
            names = json.loads(LocalStorage(model).get(CONTENTS))
        except FileNotFoundError as error:
            raise ModelNotFound(
                f"{model}: expected a mixture, found no {CONTENTS}; sample one or let sampling finish, or load a GBCM"
            ) from error
        return cls(Stored([str(Path(model, name)) for name in names]))

    def predict(self, X, *, quantiles=()) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), in original units, by the names of `GBCM.predict`.

        mean = avg m_s,  variance = avg (v_s + m_s^2) - mean^2,  of observations likewise; `lower95`, `upper95` and
        `quantile0.9` for 0.9 among `quantiles` are quantiles of the mixture of normal distributions itself.
        Probabilities of classes are averages. Holds two numbers for each row and member.

        Raises
        ------
        InvalidData, InvalidDtype, InvalidOption
        """
        said = stacked(member.predict(X, quantiles=quantiles) for member in self.members)
        out = mixed(said, quantiles)
        classes = self.members[0].model.classes
        if classes is not None:
            out["label"] = np.asarray(classes, dtype=int)[out["label"]]
        return out

    def score(self, source, *, x=None, y=None, runtime: Runtime | None = None) -> dict[str, float]:
        """Scores against the targets of a Zarr data set, in original units, by the names of `GBCM.score`.

        The log density of a row is the log of its average density over members.

        Parameters
        ----------
        x, y : names of the input and target arrays; those of the training data by default
        """
        runtime, first = runtime or SerialRuntime(), self.members[0]
        data = open_data(source, x=x or first.model.x_name, y=y or first.model.y_name)
        first.predict(np.zeros((1, data.inputs)))  # refuses other columns
        refuse_large_prediction(data, first.model.query, runtime)
        runtime.check_same(functools.partial(describe, data.url, data.x, data.y), url=data.url)
        runtime.check_same(functools.partial(record_digest, first.url, first.commit), url=first.url)
        references = tuple(member.reference for member in self.members)
        parts = aligned_partitions(data, min(data.chunk_rows, LARGEST_OUTPUT_CHUNK))
        scores = runtime.sum(MixtureScore(references), parts, label="score")
        return {"rows": data.rows, **scores.summary()}


def refuse_unmixable(likelihood):
    """Raise `InvalidOption` for likelihoods whose predictions are neither normal nor probabilities of classes."""
    if not isinstance(likelihood, Gaussian) and task_of(likelihood.name) != "classification":
        raise InvalidOption(
            f"mixture: expected a gaussian or a class likelihood, got {likelihood.name}; fit a single GBCM instead"
        )
