"""Fits with the scaling, hyper-parameters and coding of a model, so that the two can be merged.

Only the query points are chosen anew, where the rows are.
"""

from dataclasses import replace
from typing import Literal, cast

from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.learning.settings import Settings
from bcmdist.model.model import Model, named_parameters
from bcmdist.model.shared.query import Query

# Settings that the model decides.
DECIDED = ("task", "likelihood", "kernel", "mean", "warp", "target_transform", "set")


def model_like(settings: Settings) -> Model | None:
    """The model that a fit shall have the scaling and hyper-parameters of; None where it has its own.

    Raises
    ------
    InvalidOption
        The shared variables of that model are not values at query points, or its inputs have errors.
    ModelNotFound, ModelDamaged
    """
    if settings.like is None:
        return None
    model = Snapshot.load(settings.like).model
    if not isinstance(model.shared, Query) or model.input_errors is not None:
        kind = "inputs with errors" if model.input_errors is not None else model.shared.noun
        raise InvalidOption(f"--like: expected a model of values at query points, got one of {kind}: {settings.like}")
    return model


def settings_like(settings: Settings, model: Model | None) -> Settings:
    """Settings of a fit with the hyper-parameters of a model; unchanged for None.

    Raises
    ------
    InvalidOption
        A setting is given that the model decides.
    """
    if model is None:
        return settings
    default = Settings()
    if given := [name for name in DECIDED if getattr(settings, name) != getattr(default, name)]:
        raise InvalidOption(
            f"--like: expected no {' and '.join(given)} with it, since {settings.like} decides; leave them out"
        )
    values = named_parameters(model.shared.kernel, model.likelihood)
    return replace(
        settings,
        likelihood=model.likelihood.name,
        kernel=model.kernel_name,
        mean=cast(Literal["constant", "zero", "linear"], model.shared.mean.name),
        warp="none",
        target_transform="none",
        learn=False,
        set={name: value.tolist() for name, value in values.items()},
    )
