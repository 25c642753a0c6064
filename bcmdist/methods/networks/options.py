"""Options of the experts `mnn` and `mnnmix`."""

from dataclasses import dataclass
from typing import Annotated

from bcmdist.learning.method_options import declare_options
from bcmdist.storage.bounds import Bounds


@dataclass(frozen=True)
class NetworkOptions:
    """Options of a network."""

    units: Annotated[int | None, "H", Bounds(1, 10**6)] = None
    """hidden units of a network of mnn or mnnmix [default: 250]"""


@dataclass(frozen=True)
class MixtureOptions(NetworkOptions):
    """Options of a mixture of networks."""

    networks: Annotated[int, "K", Bounds(1, 1000)] = 4
    """number of networks that mnnmix mixes"""


declare_options("mnn", NetworkOptions)
declare_options("mnnmix", MixtureOptions)
