"""Options of the expert `fourier`."""

from dataclasses import dataclass

from bcmdist.learning.method_options import declare_options


@dataclass(frozen=True)
class FourierOptions:
    """Options of Fourier features."""

    tolerance: float = 0.001
    """allowed error of the covariance of the Fourier features, as a share of the kernel's variance. Above 2,000 weights
    the variance of each new row is solved for, to .1 %, in 3 ms of one core at 5,000 weights and 10 to 40 at 12,000,
    more where noise is small; with --partition spatial it is the mean of 64 random draws"""


declare_options("fourier", FourierOptions)
