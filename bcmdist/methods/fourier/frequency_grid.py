"""Choose the grid of frequencies for a given error of the kernel.

The period is long enough, and the highest frequency high enough, that inside the box of all rows

    |k~(x, x') - k(x, x')| <= tolerance k(x, x)

Half of the error is allotted to aliases from the neighbouring periods and half to truncated frequencies (Greengard,
Rachh & Barnett 2022, section 3); each half is shared evenly among the inputs. The box is that of the data, with a
margin for future rows.
"""

import math
import warnings

import numpy as np

from bcmdist.errors import BcmdistWarning, InvalidOption
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.methods.fourier import nufft
from bcmdist.methods.fourier.shared import Fourier
from bcmdist.model.kernels import Kernel, parse_kernel

MAX_INPUTS, MAX_WEIGHTS = 3, 1_000_000
# Margin of the box on each side, as a share of the extent of the data; and its lower bound for inputs that hardly vary,
# as a share of the effective range of the kernel.
MARGIN, LEAST_EXTENT = 0.05, 0.01
# Extent of standardised inputs before the data are read: six standard deviations.
TYPICAL_EXTENT = 6.0
# Largest number of frequencies considered for one input; and bisections for the effective range of a kernel.
MAX_FREQUENCIES, HALVINGS = 2**22, 60
# Largest tolerance, and the factor of its increases, where a learned kernel needs too many weights.
MAX_TOLERANCE, LOOSENING = 0.5, 2.0


def fourier_features(basis_inputs: BasisInputs) -> Fourier:
    """Fourier features for the box of all rows, at the requested tolerance.

    Where a learned kernel needs too many weights, the tolerance is increased, with a warning.

    Raises
    ------
    InvalidOption
        The features would be too many, or the kernel has no spectral density.
    """
    tolerance, place = basis_inputs.options.tolerance, (basis_inputs.kernel, basis_inputs.low, basis_inputs.high)
    if basis_inputs.learned:
        tolerance = _reachable_tolerance(*place, tolerance)
    step, most, margin = _grid(*place, tolerance)
    refuse_many(most, tolerance)
    low, high = basis_inputs.low - margin, basis_inputs.high + margin
    return Fourier(step, most, low, high, tolerance, basis_inputs.kernel, basis_inputs.mean, basis_inputs.residual)


def fits_weights(kernel: Kernel, low, high, tolerance) -> bool:
    """Whether features in the box of rows from `low` to `high` (D,) approximate a kernel within `MAX_WEIGHTS`."""
    return _count(_grid(kernel, low, high, tolerance)[1]) <= MAX_WEIGHTS


def _grid(kernel, low, high, tolerance):
    """Frequency step and highest frequency number of each input, and the margin of the box, (D,) each."""
    extent, share = high - low, tolerance / (2 * len(low))
    effective_range = np.array([_effective_range(one, share) for one in _along_each_input(kernel, len(extent))])
    margin = np.maximum(MARGIN * extent, LEAST_EXTENT * effective_range)
    step = 1.0 / (extent + 2.0 * margin + effective_range)
    return step, _highest_frequencies(kernel, step, share), margin


def _reachable_tolerance(kernel, low, high, asked):
    """The requested tolerance, or the next larger one that needs at most `MAX_WEIGHTS`."""
    tolerance = asked
    while tolerance < MAX_TOLERANCE and not fits_weights(kernel, low, high, tolerance):
        tolerance = min(LOOSENING * tolerance, MAX_TOLERANCE)
    if tolerance > asked:
        warnings.warn(
            BcmdistWarning(
                f"expert fourier: the learned kernel needs more than {MAX_WEIGHTS} weights at a tolerance of "
                f"{asked:g}; used {tolerance:g}; give a smoother --kernel for a smaller one"
            ),
            stacklevel=2,
        )
    return tolerance


def refuse_early(kernel: str, inputs: int, tolerance: float) -> None:
    """Raise `InvalidOption` for a kernel without a spectral density or too many inputs, before data are read.

    Raise `MissingExtra` where finufft is not installed.
    """
    nufft.require_finufft()
    made = parse_kernel(kernel, inputs=inputs)
    made.spectral_density(np.zeros((1, inputs)))
    if inputs > MAX_INPUTS:
        share = tolerance / (2 * inputs)
        effective_range = np.array([_effective_range(one, share) for one in _along_each_input(made, inputs)])
        most = _highest_frequencies(made, 1.0 / (TYPICAL_EXTENT + effective_range), share)
        raise InvalidOption(
            f"expert fourier: expected at most {MAX_INPUTS} inputs, got {inputs}, which would take about "
            f"{_count(most):.1g} weights (tolerance {tolerance:g}, lengthscales of {math.sqrt(inputs):.2g} standard "
            "deviations); take --expert bcm, or fewer inputs"
        )


def refuse_many(most, tolerance) -> None:
    """Raise `InvalidOption` where frequency numbers up to `most` (D,) need more than `MAX_WEIGHTS`."""
    if _count(most) > MAX_WEIGHTS:
        raise InvalidOption(
            f"expert fourier: expected at most {MAX_WEIGHTS} weights, got {_count(most):.2g} for a tolerance of "
            f"{tolerance:g}, since the kernel is rough or its lengthscales are short relative to the range of the "
            "data; raise --tolerance, give a smoother --kernel, or take --expert bcm"
        )


def _count(most):
    return float(np.prod(2.0 * np.asarray(most, dtype=float) + 1.0))


def _along_each_input(kernel: Kernel, inputs) -> list[Kernel]:
    """For each input, the one-dimensional kernel between rows that differ in that input only."""
    return [kernel.along(d) for d in range(inputs)]


def _effective_range(kernel: Kernel, share) -> float:
    """Distance beyond which a kernel of one input is below a share of its variance."""

    def covariance(r):
        return float(kernel.cross(np.zeros((1, 1)), np.array([[r]]))[0, 0])

    least, low, high = share * covariance(0.0), 0.0, 1.0
    while covariance(high) > least:
        low, high = high, 2.0 * high
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if covariance(middle) > least else (low, middle)
    return high


def _highest_frequencies(kernel: Kernel, step, share) -> np.ndarray:
    """Frequency numbers k of each input, such that truncating h k beyond loses at most a share of the variance, (D,).

    The density of a kernel along one input is the joint density summed over the frequencies of the other inputs.
    """
    each = zip(_along_each_input(kernel, len(step)), step, strict=True)
    return np.array([_highest_frequency(one, h, share) for one, h in each])


def _highest_frequency(kernel, h, share):
    variance, count, left = kernel.diagonal(np.zeros((1, 1)))[0], 64, None
    while left is None or (left[-1] > share * variance and count < MAX_FREQUENCIES):
        count *= 4
        density = h * kernel.spectral_density(h * np.arange(count)[:, None])
        left = variance - (2.0 * np.cumsum(density) - density[0])
    found = int(np.argmax(left <= share * variance)) if left[-1] <= share * variance else MAX_FREQUENCIES
    return max(found, 1)
