"""A data frame, a pipeline and a search: a committee as one more estimator of scikit-learn.

Words are encoded by the pipeline, numbers scaled by the committee itself. Predictions have standard deviations and
intervals; what was fitted is pickled with its model. Rows are absorbed in this process: no guard is needed for that.
"""

import pickle
import sys

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from bcmdist import GBCMRegressor


def houses(rows, rng):
    """Prices of houses that nobody has built."""
    frame = pd.DataFrame(
        {
            "area": rng.uniform(30, 200, rows),
            "year": rng.integers(1900, 2020, rows),
            "town": rng.choice(["Ulm", "Graz", "Chur"], rows),
        }
    )
    level = frame["town"].map({"Ulm": 0.0, "Graz": 40.0, "Chur": 120.0})
    price = level + 2.5 * frame["area"] + 60 * np.sin((frame["year"] - 1900) / 20)
    return frame, price + 15 * rng.standard_normal(rows)


rows = 400 if "--quick" in sys.argv else 4000
X, y = houses(rows, np.random.default_rng(9))
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

encode = make_column_transformer((OneHotEncoder(sparse_output=False), ["town"]), remainder="passthrough")
pipeline = make_pipeline(encode, GBCMRegressor(effort="quick", noise="constant"))
search = GridSearchCV(pipeline, {"gbcmregressor__kernel": ["se", "linear"]}, cv=2).fit(X_train, y_train)
print(f"best: {search.best_params_}, R2 on new rows {search.score(X_test, y_test):.3f}")

best = pickle.loads(pickle.dumps(search.best_estimator_))
mean, deviation = best.predict(X_test, return_std=True)
gap = (y_test.to_numpy() - mean) / deviation
print(f"one deviation is {deviation.mean():.1f}; 95 % of it held {np.mean(abs(gap) < 1.96):.3f} of new rows")
inner = best[-1]
lower, upper = inner.predict_interval(best[:-1].transform(X_test), coverage=0.8).T
print(f"80 % intervals held {np.mean((lower < y_test) & (y_test < upper)):.3f}")
print(inner.gbcm_)
