"""Fits with the scaling, hyper-parameters and coding of a model, so that the two can be merged.

Only the query points are chosen anew, where the rows are.
"""

from dataclasses import replace
from typing import Literal, cast

from bcmdist.committee.growth import why_fixed
from bcmdist.committee.mixture_commits import contents_of, references
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.schema import Schema
from bcmdist.errors import InvalidOption, UnsupportedTarget
from bcmdist.learning.settings import Settings
from bcmdist.model.model import Model, named_parameters
from bcmdist.storage.commits import MIXTURE
from bcmdist.storage.locate import open_storage

# Settings that the model decides.
DECIDED = (
    "task", "likelihood", "kernel", "mean", "warp", "target_transform", "set", "expert", "precision", "approximation",
    "linearise", "output",
)  # fmt: skip


def model_like(settings: Settings) -> Model | None:
    """The model that a fit shall have the scaling and hyper-parameters of; None where it has its own.

    Of a mixture the first member, whose columns and scaling are those of all.

    Raises
    ------
    ModelNotFound, ModelDamaged
    """
    like = settings.like
    if like is not None and MIXTURE in open_storage(like).names(""):
        like = references(contents_of(like))[0].url
    return None if like is None else Snapshot.load(like).model


def settings_like(settings: Settings) -> Settings:
    """Settings of a fit, with the hyper-parameters of the model that it shall be like, if any.

    Raises
    ------
    InvalidOption
        A setting is given that the model decides, or the query set of that model cannot change.
    ModelNotFound, ModelDamaged
    """
    if settings.like is None:
        return settings
    snapshot, default = Snapshot.load(settings.like), Settings()
    if fixed := why_fixed(snapshot):
        raise InvalidOption(
            f"--like: expected a model that others can be merged with, got {settings.like}: {fixed}; fit the rows of "
            "both together"
        )
    model, linearisation = snapshot.model, snapshot.facts.linearisation
    if given := [name for name in DECIDED if getattr(settings, name) != getattr(default, name)]:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidOption(f"--like: expected no {options}, which {settings.like} determines; leave out {options}")
    values = named_parameters(model.shared.kernel, model.likelihood)
    return replace(
        settings,
        likelihood=model.likelihood.name,
        kernel=model.kernel_name,
        expert=snapshot.facts.expert,
        precision=cast(Literal["double", "mixed"], model.precision),
        approximation=linearisation.approximation,
        linearise=linearisation.linearise,
        mean=cast(Literal["constant", "zero", "linear"], model.shared.mean.kind),
        output=model.schema.output,
        warp="none",
        target_transform="none",
        partition="chunks" if settings.partition == "auto" and model.cells is None else settings.partition,
        learn=False,
        set={name: value.tolist() for name, value in values.items()},
    )


def refuse_unknown_classes(like: Model, classes: tuple[float, ...] | None, schema: Schema, url: str) -> None:
    """Raise `UnsupportedTarget` where rows at `url` have classes, with names in `schema`, that a model lacks."""
    new = sorted(set(classes or ()) - set(like.classes or ())) if like.classes else []
    if new:
        shown = ", ".join(schema.classes[int(k)] if schema.classes else f"{k:g}" for k in new)
        raise UnsupportedTarget(
            f"{url}: expected the classes of the model of --like, {', '.join(map(str, like.class_labels)):.80}, got "
            f"{shown:.80} too; leave out these rows, or --like"
        )
