"""What a model directory holds, a committee or a mixture of them, kept from pruning while it is used."""

import contextlib
from collections.abc import Iterator

from bcmdist.api.gbcm import GBCM
from bcmdist.api.mixture import Mixture, is_mixture


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
