"""Options of the experts `mnn` and `mnnmix`."""

from dataclasses import dataclass
from typing import Annotated

from bcmdist.learning.method_options import declare_options
from bcmdist.storage.bounds import COUNT, Bounds


@dataclass(frozen=True)
class NetworkOptions:
    """Options of a network."""

    units: Annotated[int | None, "H", Bounds(1, 10**6)] = None
    """hidden units of a network of mnn or mnnmix [default: 250]"""
    train_rows: Annotated[int | None, "N", COUNT] = None
    """rows, drawn at random, on which hidden units of mnn or mnnmix are trained [default: 100,000]"""


@dataclass(frozen=True)
class MixtureOptions(NetworkOptions):
    """Options of a mixture of networks."""

    networks: Annotated[int, "K", Bounds(1, 1000)] = 4
    """number of networks that mnnmix mixes"""


declare_options("mnn", NetworkOptions)
declare_options("mnnmix", MixtureOptions)
