"""Predictions averaged over several committees: those of samples of the hyper-parameters.

Williams & Rasmussen (1996), section 3.2: the predictive distribution is an equal mixture of those at sampled
hyper-parameters. Each sample has a committee of its own; mixing over samples inside each expert and combining
afterwards would be wrong (SYSTEMS I.7).
"""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from bcmdist import __version__
from bcmdist.api.examined import Examined
from bcmdist.api.gbcm import GBCM, PICTURES, REPORT
from bcmdist.api.relevance import Lengthscales, averaged, lengthscales
from bcmdist.api.running import Where, runs
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import Dataset, check_names, describe, open_data
from bcmdist.data.outputs import new_output
from bcmdist.data.partition import aligned_partitions
from bcmdist.data.predictions import LARGEST_OUTPUT_CHUNK, create_predictions, output_names
from bcmdist.errors import InvalidOption, ModelDamaged, ModelNotFound
from bcmdist.learning.sampling.chains import load_chains, mixing, mixing_advice
from bcmdist.prediction.datasets import way_of
from bcmdist.prediction.fitted import Fitted
from bcmdist.prediction.limits import committee_memory, refuse_large_prediction
from bcmdist.prediction.mixtures.tasks import (
    CONTENTS,
    Contents,
    Members,
    MixtureJudge,
    MixturePredict,
    MixtureScore,
    judge_mixed,
    mixed,
    references,
    stacked,
)
from bcmdist.prediction.predictors import chosen_method
from bcmdist.prediction.scored_rows import with_class_names
from bcmdist.prediction.scoring.judged import Judged
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.prediction.uncertain.input_uncertainty import chosen_way
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.storage.commits import Reference, record_digest
from bcmdist.storage.locate import open_storage

# Figures of `GBCM.info` that members have in common.
SHARED = ("rows", "partitions", "commit", "query", "inputs", "kernel", "mean", "likelihood", "classes", "approximation")
PREPARED = "prepared"  # what the members have in common, the first that is written


class Stored(Sequence[GBCM]):
    """Committees in model directories, each loaded when it is asked for and not kept."""

    def __init__(self, stored: Sequence[Reference]):
        self.stored = tuple(stored)

    def __len__(self):
        return len(self.stored)

    def __getitem__(self, k):
        return Stored(self.stored[k]) if isinstance(k, slice) else _load(self.stored[k])

    def __iter__(self) -> Iterator[GBCM]:
        return map(_load, self.stored)


def _load(reference):
    """The committee behind a reference; `ModelDamaged` where another one has taken its place."""
    gbcm = GBCM.load(reference.url, commit=reference.number)
    if gbcm.snapshot.digest != reference.digest:
        raise ModelDamaged(
            f"{reference.url}: expected record {reference.digest[:12]} at commit {reference.number}, found "
            f"{gbcm.snapshot.digest[:12]}; load the mixture again, or restore it from a copy"
        )
    return gbcm


@dataclass(frozen=True)
class Mixture(Examined):
    """Committees whose predictions count alike; made by hand, by `load` or by `sampling.sample_posterior`."""

    members: Sequence[GBCM]
    """fitted to the same data with the same settings, but for the hyper-parameters"""
    contents: Contents | None = None
    """where the members are listed; None of a mixture made by hand, which is for a few"""
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
        contents = contents_of(model)
        return cls(Stored(references(contents)), contents)

    def predict(self, X, *, quantiles=(), X_variance=None, inputs=None) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), in original units, by the names of `GBCM.predict`.

        mean = avg m_s,  variance = avg (v_s + m_s^2) - mean^2,  of observations likewise; `lower95`, `upper95` and
        `quantile0.9` for 0.9 among `quantiles` are quantiles of the mixture of normal distributions itself, with the
        variances that members give (`--noise`); shapes of their errors have no part in it.
        Probabilities of classes are averages. `X_variance` and `inputs` as of `GBCM.predict`: each member averages over
        errors of inputs. Holds two numbers for each row and member.

        Raises
        ------
        InvalidData, InvalidDtype, InvalidOption
        """
        how = {"quantiles": quantiles, "X_variance": X_variance}
        how["inputs"] = inputs if X_variance is None else self._way(inputs)
        said = stacked(member.predict(X, **how) for member in self.members)
        first = self.members[0].model
        return with_class_names(first, mixed(said, quantiles, classes=first.classes))

    def predict_zarr(self, source, out, *, x=None, method=None, inputs=None, runtime: Runtime | None = None) -> int:
        """Predict at every row of a Zarr data set into a new Zarr group; the number of rows.

        Parameters and errors are those of `GBCM.predict_zarr`; there is one method, "committee".
        """
        self.chosen_method(method)
        runtime, first = runtime or SerialRuntime(), self.members[0]
        data = self._new_rows(source, x, None)
        way = self._way_of(data, inputs)
        self._refuse(data, runtime)
        attributes = {
            "model": self.url,
            "members": [[one.url, one.number] for one in references(self._carried)],
            "method": "committee",
            "inputs": list(first.model.schema.columns),
            "software": f"bcmdist {__version__}",
            "units": f"those of {first.model.y_name} in the training data; variances in their square",
        }
        with new_output(out) as place:
            example = Mixture([first]).predict(np.zeros((1, data.inputs)))
            classes = {"classes": first.model.class_labels, "names": first.model.schema.classes}
            rows = create_predictions(place, data, example, attributes, **classes)
            runtime.check_same(functools.partial(output_names, place), url=out)
            task = MixturePredict(self._carried, place, way)
            return runtime.sum(task, aligned_partitions(data, rows), label="predict")

    def score(self, source, *, x=None, y=None, method=None, inputs=None, runtime: Runtime | None = None) -> dict:
        """Scores against the targets of a Zarr data set, in original units, by the names of `GBCM.score`.

        The log density of a row is the log of its average density over members.

        Parameters
        ----------
        x, y : names of the input and target arrays; those of the training data by default
        """
        scores = self.scores(source, x=x, y=y, method=method, inputs=inputs, runtime=runtime)
        return {"rows": int(scores.totals["rows"]), **scores.summary()}

    def scores(self, source, *, x=None, y=None, method=None, inputs=None, runtime: Runtime | None = None) -> Scores:
        """The totals behind `score`, which add."""
        self.chosen_method(method)
        runtime = runtime or SerialRuntime()
        data = self._new_rows(source, x, y or self.members[0].model.y_name)
        way = self._way_of(data, inputs)
        self._refuse(data, runtime)
        return runtime.sum(MixtureScore(self._carried, way), _whole_chunks(data), label="score")

    @runs
    def plot(
        self, out, *, what=None, data=None, x=None, y=None, method=None, inputs=None, runtime: Where = None
    ) -> str:
        """Write a picture of how far it can be trusted, or of what matters to it; see `pictures.plot`."""
        how = {"what": what, "data": data, "x": x, "y": y, "method": method, "inputs": inputs}
        return import_module(PICTURES).plot(self, out, runtime, **how)

    @runs
    def report(
        self, source, out, *, train=None, x=None, y=None, method=None, inputs=None, runtime: Where = None
    ) -> dict:
        """Write a page about predictions of a data set with targets; see `report.report`."""
        how = {"train": train, "x": x, "y": y, "method": method, "inputs": inputs}
        return import_module(REPORT).report(self, source, out, runtime, **how)

    def info(self) -> dict:
        """What the members have in common, and averages over them, JSON-ready.

        `p_eff` and `log_evidence` are means, `hyperparameters` geometric means (of their logs, which are sampled).
        `samples` is the number of members, the rest as `chains.mixing` says.
        """
        every = [member.info() for member in self.members]
        first, named = every[0], [one["hyperparameters"] for one in every]
        averages = {name: _mean([one[name] for one in every]) for name in ("p_eff", "log_evidence")}
        centres = {name: np.exp(np.log([one[name] for one in named]).mean(axis=0)).tolist() for name in named[0]}
        figures = {name: first[name] for name in SHARED} | averages | {"hyperparameters": centres}
        figures |= {"jitter": max(one["jitter"] for one in every), "samples": len(every)}
        if self.contents:
            sampled = mixing(load_chains(self.contents.url)[1])
            figures |= {**sampled, "advice": mixing_advice(sampled)}
        return figures | {"model": self.url}

    def chosen_method(self, method=None) -> str:
        """The method that predicts: "committee".

        Raises
        ------
        InvalidOption
            Another was given.
        """
        if (method := chosen_method(self.members[0].snapshot, method or "committee")) != "committee":
            raise InvalidOption(
                f"method: expected committee, as members of a mixture predict, got {method!r}; leave it out, or "
                "predict with single members"
            )
        return method

    # --- What pictures and reports ask, as `Examined` says ---

    def first(self) -> Snapshot:
        return self.members[0].snapshot

    @property
    def several(self) -> int:
        return len(self.members)

    def opened(self, source, *, x=None, y=None, method=None, inputs=None) -> Dataset:
        self.chosen_method(method)
        data = self._new_rows(source, x, y or self.members[0].model.y_name)
        self._way_of(data, inputs)
        return data

    def judged(self, data: Dataset, runtime: Runtime, *, method, inputs, most: int) -> Judged:
        self._refuse(data, runtime)
        task = MixtureJudge(self._carried, min(1.0, most / data.rows), self._way_of(data, inputs))
        found = runtime.sum(task, _whole_chunks(data), label="judge")
        return found[np.argsort(found.number)]

    def judged_again(self, several: Sequence[Judged], method) -> list[Judged]:
        return judge_mixed(references(self._carried), several)

    def predicted(self, X, method) -> dict[str, np.ndarray]:
        return self.predict(X)

    def lengthscales(self) -> list[Lengthscales]:
        """Geometric means over members."""
        return [averaged(parts) for parts in zip(*(lengthscales(one.snapshot) for one in self.members), strict=True)]

    def advised(self) -> list[str]:
        """Whether the chains have mixed, of members that were sampled."""
        return [mixing_advice(mixing(load_chains(self.contents.url)[1]))] if self.contents else []

    @property
    def url(self) -> str:
        """Of its directory, or of its first member where it was made by hand."""
        return self.contents.url if self.contents else self.members[0].url

    @property
    def _carried(self) -> Members:
        """What tasks carry instead of the members."""
        return self.contents or tuple(member.snapshot.reference for member in self.members)

    def _way(self, asked: str | None) -> str:
        """How members average over uncertain inputs, as `chosen_way`, all alike."""
        several = self.members[:1] if self.contents else self.members  # sampled ones have one kernel
        first, *others = [chosen_way(Fitted, member.snapshot, asked) for member in several]
        return first if all(other == first for other in others) else "montecarlo"

    def _way_of(self, data: Dataset, asked: str | None) -> str | None:
        """How uncertain inputs of a data set are averaged over; None where they are certain."""
        return self._way(asked) if way_of(self.first(), data, Fitted, asked) else None

    def _new_rows(self, source, x, y):
        """A data set to predict."""
        first = self.members[0]
        data = open_data(source, x=x or first.model.x_name, y=y, schema=first.model.schema, uncertain=True)
        check_names(data, first.model.schema)
        first.predict(np.zeros((1, data.inputs)))  # refuses other columns
        return data

    def _refuse(self, data, runtime):
        """What cannot be done, before it begins."""
        refuse_large_prediction(committee_memory(self.members[0].model.shared), data, runtime)
        runtime.check_same(functools.partial(describe, data.url, data.x, data.y), url=data.url)
        runtime.check_same(functools.partial(_visible, self._carried), url=self.url)


def _whole_chunks(data):
    return aligned_partitions(data, min(data.chunk_rows, LARGEST_OUTPUT_CHUNK))


def _mean(figures) -> float | None:
    return None if None in figures else float(np.mean(figures))


def contents_of(model) -> Contents:
    """What the mixture of a directory consists of, by its hash; `ModelNotFound` where there is none."""
    storage = open_storage(model)
    try:
        return Contents(storage.url, hashlib.sha256(storage.get(CONTENTS)).hexdigest())
    except FileNotFoundError as error:
        raise ModelNotFound(
            f"{model}: expected a mixture, found no {CONTENTS}; sample one or let sampling finish, or load a GBCM"
        ) from error


def is_mixture(model) -> bool:
    """Whether a directory holds a mixture, or one that is being sampled."""
    return bool({CONTENTS, PREPARED} & set(open_storage(model).names("")))


def _visible(members: Members) -> str:
    """Hashes of the records of members, first and last: everyone who works with them must see the same."""
    listed = references(members)
    return " ".join(record_digest(one.url, one.number) for one in (listed[0], listed[-1]))


def refuse_unmixable(likelihood) -> None:
    """Raise `InvalidOption` for likelihoods whose predictions are neither normal nor probabilities of classes."""
    if not likelihood.normal and not likelihood.categorical:
        raise InvalidOption(
            f"mixture: expected a gaussian or a class likelihood, got {likelihood.name}; fit a single GBCM instead"
        )
