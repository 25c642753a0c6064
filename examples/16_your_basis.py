"""A basis of your own: random Fourier features as the shared variables of an expert.

A basis is a class of functions that its arrays describe; an expert says how it is made from the learned kernel. Each
fit checks the basis, and compares its evidence with that of the kernel: a basis that cannot stand for it is reported.
"""

import sys
import warnings
from dataclasses import dataclass

import numpy as np

from bcmdist import GBCM, Settings, register_expert
from bcmdist.errors import BcmdistWarning
from bcmdist.learning.experts import weights_of
from bcmdist.model.shared.weights import Basis, register_basis
from bcmdist.testing import check_basis


@register_basis
@dataclass(frozen=True)
class Waves(Basis):
    """cos and sin of the inputs times frequencies (B / 2, D)."""

    frequencies: np.ndarray
    name = "waves_of_mine"

    @property
    def inputs(self):
        return self.frequencies.shape[1]

    @property
    def functions(self):
        return 2 * len(self.frequencies)

    def features(self, X):
        phase = X @ self.frequencies.T
        return np.hstack([np.cos(phase), np.sin(phase)])

    def to_arrays(self):
        return {"frequencies": self.frequencies}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(arrays["frequencies"])


def drawn(basis_inputs):
    """Frequencies of a squared exponential kernel (Rahimi & Recht 2007), and prior standard deviations of weights."""
    parameters, half = basis_inputs.kernel.parameters, basis_inputs.count // 2
    unit = np.random.default_rng(basis_inputs.seed).standard_normal((half, basis_inputs.sample.shape[1]))
    return Waves(unit / parameters["lengthscale"]), np.sqrt(parameters["variance"] / half)


def too_smooth(basis_inputs):
    """Frequencies of another kernel than the learned one."""
    waves, scale = drawn(basis_inputs)
    return Waves(0.05 * waves.frequencies), scale


def main(rows):
    check_basis(Waves(np.array([[0.3, 1.2], [-0.7, 0.4]])), scale=0.5)
    register_expert("waves_of_mine", weights_of(drawn), residual="none")
    register_expert("too_smooth", weights_of(too_smooth), residual="none")
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(rows)
    for name in ("bcm", "waves_of_mine", "too_smooth"):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", BcmdistWarning)
            gbcm = GBCM.fit((X, y), Settings(expert=name, kernel="se", query=100, effort="quick"))
        print(f"{name}: log evidence {gbcm.info()['log_evidence']:.0f}")
        for warning in found:
            print("   ", warning.message)


if __name__ == "__main__":
    main(600 if "--quick" in sys.argv else 4000)
