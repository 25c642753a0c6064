"""Means over blocks of points, with errors that take into account that neighbours err alike."""

import numpy as np

from bcmdist import GBCM, Settings


def main():
    rng = np.random.default_rng(0)
    X, new = rng.uniform(0, 10, (2000, 2)), rng.uniform(0, 10, (600, 2))

    def field(Z):
        return np.sin(2 * Z[:, 0]) * np.cos(2 * Z[:, 1])

    settings = Settings(kernel="matern32", query=60, rows_per_expert=400, partition="spatial", effort="quick")
    model = GBCM.fit(X, field(X) + 0.5 * rng.standard_normal(2000), settings)

    block = 4 * (new[:, 0] // 2.5).astype(int) + (new[:, 1] // 2.5).astype(int)
    found, points = model.predict_average(new, block, above=[0.0]), model.predict(new)
    print("block  points   mean     sd  as if independent  P(above 0)  truth")
    for k, level in enumerate(found["group"]):
        own = block == level
        independent = np.sqrt(points["variance"][own].sum()) / own.sum()
        print(
            f"{level:5d} {found['points'][k]:7d} {found['mean'][k]:6.2f} {found['sd'][k]:6.3f} {independent:18.3f} "
            f"{found['above0'][k]:11.2f} {field(new)[own].mean():6.2f}"
        )


if __name__ == "__main__":
    main()
