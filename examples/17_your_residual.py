"""A residual of your own: what query values leave of f is shared by rows of the same stretch of time, and no others.

Between `fitc`, where each row has its own (stretches of one row), and `bcm`, where all rows of a partition share it.
`register_residual` checks the algebra against dense matrices.
"""

import sys

import numpy as np

from bcmdist import GBCM, Settings, register_expert, register_residual
from bcmdist.experts.residual import RESIDUALS, Block
from bcmdist.experts.residual_interface import Kept
from bcmdist.learning.experts import query_values
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.runtime import memory
from bcmdist.testing import check_residual

STRETCH = 20  # rows


class Stretches(Kept):
    """Lam of rows of a stretch, 0 between stretches."""

    couples = True

    def residual(self, shared, V, X):
        lower = shared.residual_lower(V, shared.kernel.cross(X, X))
        stretch = np.arange(len(X)) // STRETCH
        return Block(np.asfortranarray(lower * (stretch[:, None] == stretch)))

    def own_prior(self, shared, V, X):
        residual = self.residual(shared, V, X)
        return residual.plus(V), residual

    def expert_bytes(self, rows, shared, *, kernels, laplace, classes, coupled):
        return memory.expert_bytes(rows, shared, kernels=kernels, laplace=laplace, classes=classes, coupled=coupled)


def main(rows):
    register_residual("stretches", Stretches())
    register_expert("stretches", query_values, residual="stretches")
    # What was checked at three query points and five rows, with other stretches, points and a linear mean.
    points = np.linspace(-2.0, 2.0, 6)[:, None]
    shared = prepare(points, kernel=parse_kernel("matern32", inputs=1), mean=Mean("linear"), residual="stretches")
    check_residual(RESIDUALS["stretches"], shared, np.linspace(-2.0, 2.0, 50)[:, None])

    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0.0, 40.0, rows))
    y = np.sin(t) + 0.5 * np.sin(11.0 * t) + 0.1 * rng.standard_normal(rows)
    for name in ("fitc", "stretches", "bcm"):
        settings = Settings(partition="chunks", expert=name, kernel="se", query=30, rows_per_expert=100, effort="quick")
        gbcm = GBCM.fit((t[:, None], y), settings)
        print(f"{name}: log evidence {gbcm.info()['log_evidence']:.0f}")


if __name__ == "__main__":
    main(400 if "--quick" in sys.argv else 2000)
