"""Default fits of tables as people have them are better than a straight line.

Counts and classes, which follow a generalised linear model but for an interaction, are as good as that to 2 %.
"""

from contextlib import nullcontext as nothing

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from bcmdist import GBCM, Settings
from bcmdist.data.tables.frames import coded

pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")

from tables import TABLES, TARGETS

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
ROWS, TESTED = 1600, 400
TASKS = {"sales": "counts", "churn": "classification"}


@pytest.fixture(params=list(TABLES))
def fitted(request, rng):
    """The name of a table, a default fit to some rows, and the others; coded inputs of both; and predictions."""
    name, target = request.param, TARGETS[request.param]
    frame = TABLES[name](rng, ROWS + TESTED)
    order = rng.permutation(len(frame))
    train, test = frame.iloc[order[:ROWS]], frame.iloc[order[ROWS:]]
    X, Z = (part.drop(columns=target) for part in (train, test))
    y, u = train[target].to_numpy(), test[target].to_numpy()
    with (
        pytest.warns(UserWarning, match="gaps are|'flat' not used")
        if name in ("rents", "sensor", "churn")
        else nothing()
    ):
        made = GBCM.fit(X, y, Settings(task=TASKS.get(name)))
    Z = Z.drop(columns="flat", errors="ignore")  # names of rows, which were left out
    found, loss = made.predict(Z), made.score(Z, u)["mnlp" if name != "churn" else "log_loss"]
    coding, mean, size = made.model.schema.coding, made.model.scaling.x_mean, made.model.scaling.x_scale
    A, B = ((coded(part[list(coding.columns)], coding) if coding else part.to_numpy(float)) for part in (X, Z))
    A, B = (np.column_stack([np.ones(len(part)), (part - mean) / size]) for part in (A, B))
    return name, A, y, B, u, found, loss


def test_a_default_fit_is_better_than_a_line(fitted):
    name, A, y, B, u, found, loss = fitted
    if name == "churn":
        p = LogisticRegression(C=100.0, max_iter=1000).fit(A, y).predict_proba(B)
        assert loss < -1.02 * np.log(p[np.arange(TESTED), (u == "yes") * 1]).mean()
        return
    if name == "sales":
        mean = PoissonRegressor(alpha=1e-8, max_iter=1000).fit(A, y).predict(B)
        theirs = -stats.poisson.logpmf(u, mean).mean()
    else:
        weights = np.linalg.lstsq(A, y, rcond=None)[0]
        mean = B @ weights
        theirs = -stats.norm.logpdf(u, mean, np.std(y - A @ weights)).mean()
    assert loss < theirs
    assert np.abs(found["observation_mean"] - u).mean() < (1.02 if name == "sales" else 1.0) * np.abs(mean - u).mean()
    assert found["lower95"].min() >= 0.0
    if name != "sales":  # intervals of counts hold more, as their limits belong to them
        assert abs(np.mean((u >= found["lower95"]) & (u <= found["upper95"])) - 0.95) < 0.04
