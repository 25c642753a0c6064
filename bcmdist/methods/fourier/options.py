"""Options of the expert `fourier`."""

from dataclasses import dataclass

from bcmdist.learning.method_options import declare_options


@dataclass(frozen=True)
class FourierOptions:
    """Options of Fourier features."""

    tolerance: float = 0.001
    """allowed error of the covariance of the Fourier features, as a share of the kernel's variance. Above 10,000
    weights the variance of each new row is solved for, to .1 %, in some 50 ms of one core; with --partition spatial it
    is the mean of 64 random draws above 2,000"""


declare_options("fourier", FourierOptions)
