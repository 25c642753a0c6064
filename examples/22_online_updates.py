"""A stream followed update by update: how much it surprises the model, and how much each block still changes.

`GBCM.update` absorbs a block of rows by the Kalman filter's step of mean and covariance (Tresp 2001, Appendix B) and
returns its innovation, about 1 while rows are as predicted, and its gain, from 1 (the rows decide) to 0 (all was known
before). On the command line: `bcmdist ingest model stream.zarr --update kalman`, `bcmdist info model --history`. The
committee is that of `partial_fit`, which adds messages.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

from bcmdist import GBCM, Settings
from bcmdist.errors import BcmdistWarning


def block(rng, rows, *, shift=0.0):
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + shift + 0.1 * rng.standard_normal(rows)


def main(blocks):
    warnings.simplefilter("default", BcmdistWarning)  # of drift, which is to come
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(partition="chunks", kernel="se", query=50, effort="quick")
        gbcm = GBCM.fit(*block(rng, 500), settings, model=Path(folder) / "model")
        for number in range(1, blocks + 1):
            shift = 1.0 if number == blocks else 0.0  # the sensor moves
            gbcm, update = gbcm.update(*block(rng, 200, shift=shift))
            print(f"block {number}: {update.rows} rows, innovation {update.innovation:6.2f}, gain {update.gain:.2f}")

        rows = block(rng, 200)
        kalman, _ = gbcm.update(*rows)
        summed = GBCM.load(gbcm.url, commit=gbcm.commit).save(Path(folder) / "summed").partial_fit(*rows)
        difference = kalman.committee.posterior.mean - summed.committee.posterior.mean
        print(f"largest difference to the sum of messages: {np.abs(difference).max():.0e}")


if __name__ == "__main__":
    main(4 if "--quick" in sys.argv else 12)
