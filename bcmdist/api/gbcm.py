"""`GBCM`, the main class for users: fit, update, predict with and inspect one committee.

    prediction = GBCM.fit("train.zarr", Settings(query=500), model="model").predict(X)

`fit` is `prepare`, then `absorb`, then `refine`. `forget` withdraws partitions, `reweight` changes their weights, and
`merge` adds two committees. Methods are thin: each delegates to a function of another module.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from numpy.typing import ArrayLike

from bcmdist.api import fit
from bcmdist.api.carried import write_portable
from bcmdist.api.display import health_html, summary
from bcmdist.api.editable_committee import EditableCommittee
from bcmdist.api.places import DataSource, asked
from bcmdist.api.running import Where, runs
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.groups import Location
from bcmdist.learning.partition_choice import as_stored
from bcmdist.learning.settings import Settings


@dataclass(frozen=True)
class GBCM(EditableCommittee):
    """A committee at one commit of a model directory. Immutable: `absorb` and the like return a new `GBCM`.

    Work runs in this process unless a method gets a `runtime`: a `Runtime`, a Dask client or a scheduler address.

    Parameters
    ----------
    snapshot : state of the model directory at a commit; `fit`, `prepare` and `load` make one

    Examples
    --------
    >>> from bcmdist import GBCM, Settings
    >>> fitted = GBCM.fit(X, y, Settings(kernel="se", query=20, effort="quick"))
    >>> fitted.predict(X[:3])["mean"].shape
    (3,)
    """

    def __repr__(self) -> str:
        return f"GBCM({summary(self.snapshot)})"

    def _repr_html_(self) -> str:
        return health_html(self.snapshot)

    @classmethod
    @runs
    def fit(
        cls,
        source: DataSource,
        y: ArrayLike | Settings | None = None,
        settings: Settings | None = None,
        *,
        companions: Mapping[str, ArrayLike] | None = None,
        sphere: tuple[str, str] | None = None,
        model: Location | None = None,
        runtime: Where = None,
    ) -> "GBCM":
        """Fit a committee to a data set: `GBCM.fit(path, settings)`, or `GBCM.fit(X, y, settings)`.

        An unfinished fit with the same arguments is continued.

        Parameters
        ----------
        source : path or URL of a Zarr group; or X (N, D), an array or data frame
        y : numbers or strings (N,), beside X
        settings : default: `Settings()`
        companions : further columns by name, such as weight (N,) or X_variance (N, D), beside X
        sphere : columns of a data frame with longitude and latitude, in degrees
        model : path of the new model directory; default: a temporary one
        runtime : a `Runtime`, a Dask client or a scheduler address; default: in this process

        Returns
        -------
        The committee at its newest commit.

        Raises
        ------
        DataNotFound, InvalidData, InvalidDtype, InvalidOption, UnsupportedTarget
            Before anything is written.
        ModelExists
            `model` holds another model.
        MemoryLimit, WorkerLost
            Of the runtime.

        Examples
        --------
        >>> fitted = bcmdist.GBCM.fit(X, y, settings, companions={"weight": np.ones(80)}, model="model")
        >>> fitted.info()["rows"]
        80
        """
        source, settings = asked(source, y, settings, companions, sphere)
        return cls(fit.fit(source, settings, model, runtime))

    @classmethod
    @runs
    def prepare(
        cls,
        source: DataSource,
        y: ArrayLike | Settings | None = None,
        settings: Settings | None = None,
        *,
        companions: Mapping[str, ArrayLike] | None = None,
        sphere: tuple[str, str] | None = None,
        model: Location | None = None,
        runtime: Where = None,
    ) -> "GBCM":
        """Choose scaling, hyper-parameters and query points, and commit an empty committee.

        The committee takes rows as they are stored or arrive, unless `settings.partition` is "spatial".

        Parameters
        ----------
        source, y, settings, companions, sphere, model, runtime : as of `fit`

        Returns
        -------
        The empty committee, whose predictions are those of the prior.

        Raises
        ------
        BcmdistError
            As `fit`.

        Examples
        --------
        >>> empty = bcmdist.GBCM.prepare(X, y, settings)
        >>> empty.partial_fit(X, y).info()["rows"]
        80
        """
        source, settings = asked(source, y, settings, companions, sphere)
        return cls(fit.prepare(source, as_stored(settings), model, runtime)[0])

    @classmethod
    def load(cls, model: Location, *, commit: int | str | None = None) -> "GBCM":
        """Load the committee of a model directory at a commit.

        Parameters
        ----------
        model : path or URL of the model directory
        commit : its number or alias; default: the newest

        Returns
        -------
        The committee.

        Raises
        ------
        ModelNotFound, ModelDamaged, InvalidOption

        Examples
        --------
        >>> bcmdist.GBCM.load(gbcm.url, commit=1).commit
        1
        """
        return cls(Snapshot.load(model, commit=commit))

    @classmethod
    @contextlib.contextmanager
    def held(cls, model: Location, *, commit: int | str | None = None) -> Iterator["GBCM"]:
        """Context manager: as `load`, and the commit is protected from pruning until exit.

        Parameters
        ----------
        model, commit : as of `load`

        Returns
        -------
        Context manager of the committee.

        Raises
        ------
        ModelNotFound, ModelDamaged, InvalidOption

        Examples
        --------
        >>> with bcmdist.GBCM.held(gbcm.url) as same:
        ...     same.commit == gbcm.commit
        True
        """
        with Snapshot.opened(model, commit=commit) as snapshot:
            yield cls(snapshot)

    def save(self, model: Location) -> "GBCM":
        """Copy this committee into a new directory, without the paths of its data.

        The copy cannot read the absorbed rows again and forget them.

        Parameters
        ----------
        model : path of the new directory

        Returns
        -------
        The copy.

        Raises
        ------
        ModelExists

        Examples
        --------
        >>> gbcm.save("copy").info()["rows"]
        80
        """
        return GBCM(write_portable(self.snapshot, model))

    def newest(self) -> "GBCM":
        """Load the committee of the same directory at its newest commit.

        Returns
        -------
        The committee.

        Raises
        ------
        ModelNotFound

        Examples
        --------
        >>> gbcm.newest().commit >= gbcm.commit
        True
        """
        return GBCM(self.snapshot.newest())

    def single(self, what: str) -> "GBCM":
        return self
