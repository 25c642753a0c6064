"""Files in the place of data sets: what `fit`, `ingest` and `score` are given as a table, as rows that workers read.

    MODEL.data/prices.parquet.zarr      beside the model, since its ledger names the rows by where they lie

A file is imported once. The data set says of what: the same command again goes on with it, and another file of that
name is refused. Where nothing comes of the work, nothing of it is left.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace

from bcmdist.api.mixture import is_mixture
from bcmdist.api.requests import FitRequest
from bcmdist.data.groups import absolute_url
from bcmdist.data.outputs import discard
from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.options import TableOptions
from bcmdist.data.tables.origin import MADE_OF, origin, origin_of
from bcmdist.data.tables.roles import Roles, roles_of
from bcmdist.data.tables.tables import is_table
from bcmdist.errors import DataExists, InvalidOption
from bcmdist.learning.settings import Settings
from bcmdist.model.model import Model
from bcmdist.storage.commits import open_store
from bcmdist.storage.paths import make_folders
from bcmdist.storage.unfinished import partial


@contextlib.contextmanager
def fitted(request: FitRequest) -> Iterator[FitRequest]:
    """A request to fit, with a data set in the place of a file.

    Raises
    ------
    DataExists, InvalidOption; of files as `import_file`
    """
    settings = request.settings
    if not is_table(request.data):
        if request.table != TableOptions():
            raise InvalidOption(
                f"{request.data}: expected a file with --weight, --drop, --missing and the like, got a data set; leave "
                "them out, or say them to `bcmdist import`"
            )
        yield request
        return
    roles = roles_of(request.table, settings.y, x=None if settings.x == Settings.x else settings.x)
    with _beside(request.model, request.data, roles, functools.partial(_is_fitted_to, request.model)) as place:
        yield replace(request, data=place, settings=replace(settings, x="X", y="y"))


def _is_fitted_to(model, place) -> bool:
    """Whether a directory holds a model of a data set, or a mixture."""
    if is_mixture(model):
        return True
    store = open_store(model)
    return store.head() > 0 and store.load().facts["fit"].get("data") == absolute_url(place)


def like_training(model: Model, file, *, y=None, unseen=None) -> Roles:
    """Roles of a file with targets by those of the training data.

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
    return Roles(target, companions=companions, coding=coding, unseen=unseen)


@contextlib.contextmanager
def ingested(model: Model, url, source, *, unseen=None, stays: Callable[[], bool]) -> Iterator[str]:
    """A source of rows for a model at `url`, with a data set in the place of a file, which stays once it was
    absorbed."""
    if not is_table(source):
        _refuse_unseen(source, unseen)
        yield source
        return
    with _beside(url, source, like_training(model, source, unseen=unseen), lambda _: stays()) as place:
        yield place


@contextlib.contextmanager
def scored(model: Model, url, data, *, x=None, y=None, unseen=None) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Rows with targets, with a data set that does not stay in the place of a file; and names of its arrays.

    No rows at all, as a picture may have, stay none.
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
        rows = f"{place}/{os.path.basename(os.path.abspath(data))}"  # by which pictures and reports call it
        roles = like_training(model, data, y=y, unseen=unseen)
        import_file(data, rows, roles=roles, attributes={MADE_OF: origin(data)})
        yield rows, {"x": "X", "y": "y"}
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _refuse_unseen(data, unseen):
    if unseen is not None:
        raise InvalidOption(f"{data}: expected a file with --unseen, got none; leave it out")


@contextlib.contextmanager
def _beside(model, file, roles, stays):
    """The data set of a file beside a model; it is removed where it was made here and `stays` does not say so."""
    made_of = origin(file) | {"roles": hashlib.sha256(repr(roles).encode()).hexdigest()}
    place = f"{str(model).rstrip('/')}.data/{made_of['file']}.zarr"
    known = origin_of(place)
    if known is not None:
        if known != made_of:
            raise DataExists(
                f"{file}: expected the file, and the options, of which {place} was made, got others; give another "
                "--model or name of the file, or remove that data set if no model needs it"
            )
        yield place
        return
    import_file(file, place, roles=roles, attributes={MADE_OF: made_of})
    try:
        yield place
    finally:
        if not stays(place):
            discard(place)
            with contextlib.suppress(OSError):  # on an object store, or others lie there
                os.rmdir(os.path.dirname(place))
