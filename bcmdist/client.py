"""Client of the service (`bcmdist serve`): predictions and new rows over HTTP, with the standard library only.

    service = Client("http://127.0.0.1:8000", token="...")
    service.predict("prices", [{"area": 70.0, "town": "Ulm", "sold": "2026-01-03"}])["mean"]
    service.absorb("prices", frame, key="2026-01-03")

Rows are data frames or lists of objects with the columns of the table that the model was fitted to, or arrays (n, D).
"""

import http.client
import json
import math
import ssl
import time
import urllib.error
import urllib.request
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np

from bcmdist import errors
from bcmdist.data.tables.coding import unknown_levels_described
from bcmdist.data.tables.frames import framed

BUSY = (429, 503)  # to be tried again, after the seconds of the header Retry-After
LONGEST_PAUSE = 30.0


@dataclass(frozen=True)
class Client:
    """A service at a URL. Requests that find it busy, or not there, are repeated; rows count once all the same.

    Raises
    ------
    BcmdistError
        From each method: the class of the error that the service answers with; `ServiceRefused` for others, and where
        no service answers.

    Examples
    --------
    >>> from bcmdist.client import Client
    >>> service = Client("http://127.0.0.1:8000")
    >>> service.predict("wave", X[:3])["mean"].shape
    (3,)
    >>> service.absorb("wave", X, y, key="2026-01-03")["rows"]
    80
    """

    url: str | Sequence[str]
    """URL of the service, or URLs of services of the same models: a request that one cannot answer goes to the next"""
    token: str | None = field(default=None, repr=False)
    """as printed by `bcmdist tokens add`"""
    timeout: float = 120.0
    """seconds to wait for an answer"""
    tries: int = 5
    """requests in all to a service that is busy or not reachable"""
    context: ssl.SSLContext | None = None
    """for certificates that this machine does not know"""

    def models(self) -> list[str]:
        """Return the names of the models that are served."""
        return [one["name"] for one in self._json("GET", "/models")["models"]]

    def describe(self, model: str) -> dict[str, Any]:
        """Return the figures of a `model`, by its name, as `GBCM.info`; `fields` lists the columns of its table."""
        answer: dict[str, Any] = self._json("GET", f"/models/{model}")
        return answer

    def history(self, model: str) -> list[dict[str, Any]]:
        """Return descriptions of the commits of a `model`, oldest first."""
        answer: list[dict[str, Any]] = self._json("GET", f"/models/{model}/history")["history"]
        return answer

    def aliases(self, model: str) -> dict[str, int]:
        """Return the numbers of the commits of a `model` that have aliases, by alias."""
        answer: dict[str, int] = self._json("GET", f"/models/{model}/aliases")["aliases"]
        return answer

    def set_alias(self, model: str, alias: str, commit: int | str | None = None) -> None:
        """Let an `alias`, such as "stable", name a `commit` of a `model`, by default the newest, which is kept."""
        self._json("PUT", f"/models/{model}/aliases/{quote(alias, safe='')}", {"commit": commit})

    def remove_alias(self, model: str, alias: str) -> None:
        """Remove an `alias` of a `model`."""
        self._json("DELETE", f"/models/{model}/aliases/{quote(alias, safe='')}")

    def revert(self, model: str, to: int | str, *, key: str | None = None) -> dict[str, Any]:
        """Return a `model` to an earlier commit, given by number or alias, as a new commit, exactly once for each
        `key`.

        Returns the receipt, with the number of the new commit as `commit`. `to`: the earlier one. `key` as of `absorb`.
        """
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        answer: dict[str, Any] = self._json("POST", f"/models/{model}/revert", {"to": to}, **headers)
        return answer

    def predict(
        self,
        model: str,
        X: Any,
        *,
        commit: int | str | None = None,
        method: str | None = None,
        quantiles: Sequence[float] = (),
        intervals: Sequence[float] = (),
        X_variance: Any = None,
        inputs: str | None = None,
        exposure: Any = None,
        trials: Any = None,
        target_variance: Any = None,
    ) -> dict[str, np.ndarray]:
        """Return predictions by name, (n,) or (n, C) each, as `GBCM.predict`.

        Parameters
        ----------
        model : name of the model
        X : a data frame, a list of objects by column name, or an array (n, D)
        commit : number or alias of the commit to predict with; default: the newest
        method : "local" or "committee"; default: that of the model
        quantiles, intervals : levels of quantiles (`quantile0.1`), and masses of central intervals (`lower80`)
        X_variance, inputs : variances (n, D) or covariances (n, D, D) of errors of X, and how to average over them
        exposure, trials : one number or (n,), of counts
        target_variance : one number or (n,), known variances of the errors of the new observations

        Levels that training lacks are counted in a warning.

        Raises
        ------
        BcmdistError
            The class of the error that the service answers with; `ServiceRefused` for others.
        """
        asked = {"method": method, "inputs": inputs, "exposure": exposure, "trials": trials, "X_variance": X_variance}
        asked["target_variance"] = target_variance
        levels = {"quantiles": list(quantiles), "intervals": list(intervals)}
        body = (
            rows_of(X)
            | {n: _plain(v) for n, v in asked.items() if v is not None}
            | {n: v for n, v in levels.items() if v}
        )
        at = "" if commit is None else f"?commit={quote(str(commit), safe='')}"
        answer = self._json("POST", f"/models/{model}/predict{at}", body)
        for name, count in answer.get("unknown_levels", {}).items():
            warnings.warn(errors.BcmdistWarning(f"X: {unknown_levels_described(name, count)}"), stacklevel=2)
        return {name: np.asarray(values) for name, values in answer["predictions"].items()}

    def absorb(self, model: str, X: Any, y: Any = None, *, key: str | None = None, **companions: Any) -> dict[str, Any]:
        """Let a model absorb rows exactly once, and return the receipt once they are committed.

        Parameters
        ----------
        model : name of the model
        X : as of `predict`
        y : targets (n,); default: the column of X with the name of the target in training
        key : names these rows: sent again under the same key, also by another process, they count once; default: a
            key of this call
        companions : `weight`, `exposure`, `trials`, `event` or `target_variance`, (n,), or `X_variance`

        Raises
        ------
        As `predict`.
        """
        body = rows_of(X) | {name: _plain(v) for name, v in {"y": y, **companions}.items() if v is not None}
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        answer: dict[str, Any] = self._json("POST", f"/models/{model}/rows", body, **headers)
        return answer

    def _json(self, verb: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request, again while the service is busy, and return the answer."""
        data = None if body is None else json.dumps(body).encode()
        headers |= {"Content-Type": "application/json"} if data else {}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        urls = [self.url] if isinstance(self.url, str) else list(self.url)
        for left in reversed(range(max(1, self.tries) * len(urls))):
            url, pause = urls[-1 - left % len(urls)], None
            request = urllib.request.Request(url.rstrip("/") + path, data, headers, method=verb)
            try:
                with self._open(request) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in BUSY or not left:
                        raise _refused(error) from None
                    pause = error.headers.get("Retry-After")
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                if not left:
                    why = getattr(error, "reason", error)
                    raise errors.ServiceRefused(
                        f"{url}: expected a service that answers, got {why}; check that `bcmdist serve` runs there"
                    ) from error
            if left % len(urls) == 0:  # all were asked
                time.sleep(_pause(pause))
        raise AssertionError("the last try returns or raises")

    def _open(self, request: urllib.request.Request) -> Any:
        return urllib.request.urlopen(request, timeout=self.timeout, context=self.context)


def rows_of(X: Any) -> dict[str, Any]:
    """Return rows as the part of a request that holds them: `rows` by column name, or `X` as lists of numbers."""
    X = framed(X)
    if hasattr(X, "iloc"):
        gaps = {name: X[name].isna() for name in X.columns}
        columns = {
            str(name): [None if gap else _value(value) for value, gap in zip(X[name], gaps[name], strict=True)]
            for name in X.columns
        }
        return {"rows": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}
    if isinstance(X, Sequence) and len(X) and isinstance(X[0], Mapping):
        return {"rows": [{name: _value(value) for name, value in row.items()} for row in X]}
    return {"X": np.asarray(X, dtype=float).tolist()}


def _value(value: Any) -> str | bool | float | None:
    """Return a cell as JSON: gaps as null, dates as ISO 8601."""
    if value is None or value != value:  # nan and NaT differ from themselves
        return None
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, (bool, str)) else float(value) if math.isfinite(value) else str(value)


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist() if not isinstance(value, str) else value


def _pause(seconds: str | None) -> float:
    try:
        return 1.0 if seconds is None else min(float(seconds), LONGEST_PAUSE)
    except ValueError:
        return 1.0


def _refused(answer: urllib.error.HTTPError) -> errors.BcmdistError:
    """Return the error that an answer tells of, of its class where the package has it."""
    try:
        told = json.load(answer)
        name, text = str(told["error"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        name, text = "", f"HTTP status {answer.code}"
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.BcmdistError):
        return kind(text)
    return errors.ServiceRefused(f"{name or 'answer'} ({answer.code}): {text}")
