"""Check the arrays that stand beside targets against those of training."""

from collections.abc import Collection, Sequence

from bcmdist.data.dataset import Dataset
from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.schema import warn
from bcmdist.errors import InvalidData
from bcmdist.model.model import Model
from bcmdist.model.targets import refuse_target_variance


def check_companions(data: Dataset, stored: Sequence[str] | None, model: Model, url: str) -> None:
    """Warn of companion arrays of a data set that are missing or unused, compared with training.

    Parameters
    ----------
    stored : names of the arrays in training; None where these are unknown
    url : of the model

    Raises
    ------
    InvalidData
        The array `event` is missing, so that censored lifetimes would count as ended, or the known variances of
        targets are.
    InvalidOption
        The model cannot use known variances of targets.
    """
    read = model.likelihood.companions
    if TARGET_VARIANCE in data.companions:
        refuse_target_variance(model, data.url)
    if stored is None:
        return
    missing = {name for name in stored if name in read} - set(data.companions)
    if data.y is not None:
        _refuse_missing(data, missing)
    for name in sorted(missing - {"event", TARGET_VARIANCE}):
        warn(f"{url}: rows have no {name}, those of training had: 1 is taken")
    for name in sorted(set(data.companions) - {"weight", *stored, *read}):
        warn(f"{url}: {name} is not used: the {model.likelihood.name} likelihood does not read it")


def _refuse_missing(data: Dataset, missing: Collection[str]) -> None:
    if "event" in missing:
        raise InvalidData(
            f"{data.url}: expected an array event beside {data.y}, as in training, found none: lifetimes would all "
            "count as ended; add it, 1 where one ended and 0 where it was censored"
        )
    if TARGET_VARIANCE in missing:
        raise InvalidData(
            f"{data.url}: expected an array {TARGET_VARIANCE} beside {data.y}, as in training, with the known variance "
            "of the error of each target, found none; add it, 0 where there is no error but the learned one"
        )
