"""Tables (.csv, .parquet) as arguments of `fit`, `ingest` and `score`: imported to Zarr data sets that workers read.

    MODEL.data/prices.parquet.zarr      next to the model, since the keys of its ledger contain the data set's path

A file is imported once. The data set records its origin: the same command reuses it, and another file of the same
name is refused. A data set that no model uses in the end (after a check, a plan or a failure) is removed.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from bcmdist.api.requests import FitRequest
from bcmdist.committee.mixture_commits import is_mixture
from bcmdist.data.groups import Location, absolute_url
from bcmdist.data.outputs import discard
from bcmdist.data.schema import found_instead
from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.options import TableOptions
from bcmdist.data.tables.origin import MADE_OF, origin, origin_of
from bcmdist.data.tables.roles import Roles, roles_of
from bcmdist.data.tables.tables import is_table, open_table
from bcmdist.errors import DataExists, DataNotFound, InvalidOption
from bcmdist.learning.like import model_like
from bcmdist.learning.settings import Settings
from bcmdist.model.model import Model
from bcmdist.storage.commits import open_store
from bcmdist.storage.paths import make_folders
from bcmdist.storage.temporary import partial


@contextlib.contextmanager
def fitted(request: FitRequest) -> Iterator[FitRequest]:
    """Context manager: return the request with its table file, if any, replaced by an imported data set.

    Raises
    ------
    DataExists, InvalidOption; for table files also the errors of `import_file`
    """
    settings = request.settings
    if not is_table(request.data):
        if request.table != TableOptions():
            raise InvalidOption(
                f"{request.data}: expected a file with --weight, --drop, --missing and the like, got a data set; leave "
                "them out, or give them to `bcmdist import`"
            )
        yield request
        return
    if like := model_like(settings):
        _refuse_columns(request)
        roles = like_training(like, request.data, y=None if settings.y == Settings.y else settings.y)
    else:
        roles = _fitted_roles(request.data, request.table, settings)
    with _imported_nearby(request.model, request.data, roles, functools.partial(_is_fitted_to, request.model)) as place:
        yield replace(request, data=place, settings=replace(settings, x="X", y="y"))


def _fitted_roles(file: Location, table: TableOptions, settings: Settings) -> Roles:
    """Return the roles of the columns of a table to fit to; that which names outputs is a category among the inputs."""
    output, x = settings.output, None if settings.x == Settings.x else settings.x
    names = getattr(open_table(file), "names", ()) if output is not None else ()
    if output is not None and names and output not in names:
        found = found_instead(output, names)
        raise DataNotFound(f"{file}: expected a column {output!r}, found {found}; correct --output")
    if output is not None:
        table = replace(table, category=list(dict.fromkeys([*table.category, output])))
        x = x if x is None or output in x.split(",") else f"{x},{output}"
    return roles_of(table, settings.y, x=x)


def _refuse_columns(request: FitRequest) -> None:
    if request.table != TableOptions() or request.settings.x != Settings.x:
        raise InvalidOption(
            f"{request.data}: expected no options on its columns but --y with --like, since {request.settings.like} "
            "decides; leave them out"
        )


def _is_fitted_to(model: Location, place: Location) -> bool:
    """Whether directory `model` holds a model fitted to the data set at `place`, or a mixture."""
    if is_mixture(model):
        return True
    store = open_store(model)
    return store.head() > 0 and store.load().facts["fit"].get("data") == absolute_url(place)


def like_training(
    model: Model, file: Location, *, y: str | None = None, unseen: str | None = None, id: str | None = None
) -> Roles:
    """Return the roles of the columns of a table with targets, as in the training table; `id` is kept with the rows.

    Raises
    ------
    InvalidOption
        The model was not fitted to a table.
    """
    coding = model.schema.coding
    if coding is None:
        raise InvalidOption(
            f"{file}: expected a data set, got a file, and a model that was fitted to no table; `bcmdist import` it "
            "first"
        )
    roles = dict(coding.roles)
    target = y or roles.pop("y", model.y_name)
    roles.pop("y", None)
    companions = {role: name for role, name in roles.items() if role in ("weight", *model.likelihood.companions)}
    return Roles(target, companions=companions, coding=coding, unseen=unseen, id=id)


@contextlib.contextmanager
def ingested(
    model: Model, url: Location, source: str, *, unseen: str | None = None, stays: Callable[[], bool]
) -> Iterator[str]:
    """Context manager: return the source for ingestion into the model at `url`, with a table file imported.

    `stays`: called on exit; the imported data set is kept where it returns true (its rows were absorbed).
    """
    if not is_table(source):
        _refuse_unseen(source, unseen)
        yield source
        return
    with _imported_nearby(url, source, like_training(model, source, unseen=unseen), lambda _: stays()) as place:
        yield place


@contextlib.contextmanager
def scored(
    model: Model,
    url: Location,
    data: Any,
    *,
    x: str | None = None,
    y: str | None = None,
    unseen: str | None = None,
    id: str | None = None,
) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Context manager: return the data set to score and the names of its arrays, with a table file imported.

    The imported data set is removed on exit. `data` None, as for some pictures, is returned unchanged. `id`: a column
    of the table that is kept as an array of the data set.
    """
    if data is None or not is_table(data):
        _refuse_unseen(data, unseen)
        yield data, {"x": x, "y": y}
        return
    if x is not None:
        raise InvalidOption(f"{data}: expected a data set with --x, got a file; leave it out")
    place = tempfile.mkdtemp() if "://" in str(url) else partial(os.path.abspath(url))
    try:
        make_folders(place, url)
        rows = f"{place}/{os.path.basename(os.path.abspath(data))}"  # pictures and reports show this name
        roles = like_training(model, data, y=y, unseen=unseen, id=id)
        import_file(data, rows, roles=roles, attributes={MADE_OF: origin(data)})
        yield rows, {"x": "X", "y": "y"}
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _refuse_unseen(data: Location | None, unseen: str | None) -> None:
    if unseen is not None:
        raise InvalidOption(f"{data}: expected a file with --unseen, got none; leave it out")


@contextlib.contextmanager
def _imported_nearby(model: Location, file: Location, roles: Roles, stays: Callable[[str], bool]) -> Iterator[str]:
    """Context manager: return the data set imported from a table file, next to the model.

    A data set that was imported here is removed on exit unless `stays(place)`.
    """
    made_of = origin(file) | {"roles": hashlib.sha256(repr(roles).encode()).hexdigest()}
    place = f"{str(model).rstrip('/')}.data/{made_of['file']}.zarr"
    previous = origin_of(place)
    if previous is not None:
        if previous != made_of:
            raise DataExists(
                f"{file}: expected the file, and the options, of which its data set in {model}.data was made, got "
                "others; to ingest rows that were added, write them to a file of their own; else give another --model "
                "or name of the file, or remove that data set if no model needs it"
            )
        yield place
        return
    with contextlib.ExitStack() as undo:
        undo.callback(_remove_if_empty, os.path.dirname(place))
        import_file(file, place, roles=roles, attributes={MADE_OF: made_of})  # leaves nothing where it fails
        undo.callback(lambda: None if stays(place) else discard(place))
        yield place


def _remove_if_empty(directory: str) -> None:
    with contextlib.suppress(OSError):  # an object store, or the directory is not empty
        os.rmdir(directory)
