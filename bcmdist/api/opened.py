"""What a model directory holds, a committee or a mixture of them, kept from pruning while it is used."""

import contextlib
from collections.abc import Iterator

from bcmdist.api.examined import Alone, Examined
from bcmdist.api.gbcm import GBCM
from bcmdist.api.mixture import Mixture, is_mixture
from bcmdist.errors import InvalidOption


@contextlib.contextmanager
def opened(model) -> Iterator[GBCM | Mixture]:
    """The newest committee of a directory, or its mixture.

    Raises
    ------
    ModelNotFound, ModelDamaged, VersionMismatch
    """
    if is_mixture(model):
        yield Mixture.load(model)
    else:
        with GBCM.held(model) as held:
            yield held


@contextlib.contextmanager
def examined(model) -> Iterator[Examined]:
    """As `opened`, for pictures and reports."""
    with opened(model) as found:
        yield found if isinstance(found, Mixture) else Alone(found.snapshot)


def refuse_mixture(model, what) -> None:
    """Raise `InvalidOption` where a directory holds a mixture, with which one cannot do that."""
    if is_mixture(model):
        raise InvalidOption(
            f"{model}: expected a single committee to {what}, it holds a mixture of sampled ones, which stays as it "
            "is; name one of its members/, or fit another --model to the data that you want it to hold"
        )
