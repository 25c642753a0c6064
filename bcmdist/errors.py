"""Every error bcmdist raises on purpose.

Each class is a `BcmdistError` and also the builtin it resembles, so that both
`except BcmdistError` and `except ValueError` do what one expects. The text of an error is one
sentence: what was expected, what came, what to do. All take that text as their only argument,
so that they survive the way from a worker to the client.

Texts are written with options of the command line (`--query`), and with the paths of data sets. They are shown as their
reader knows these (`as_shown`): in Python with the names of parameters (`query`), and everywhere with the name of the
table, or "rows in memory", in place of the path of a data set that was made of them.
"""

import contextlib
import re
from collections.abc import Iterator

# An option outside of commands, which are in backticks.
OPTION = re.compile(r"`[^`]*`|(?<![\w-])--(no-)?([a-z][a-z-]*[a-z]|[a-z])\b")
# Data sets made of what a user gave: the name of the table, in a directory MODEL.data or one of an unfinished output,
# and rows in memory, in a scratch directory.
MADE_OF_TABLE = re.compile(
    r"[^\s'\"(]*(?:\.data|\.partial-[\w.-]+)/([^/\s]+\.(?:csv|tsv|parquet)(?:\.gz)?)(?:\.zarr)?(?![\w.])"
)
MADE_OF_ROWS = re.compile(r"[^\s'\"(]*/bcmdist-\w+/rows-in-memory\.zarr")

_options_shown: list[bool] = []  # not empty: on the command line


@contextlib.contextmanager
def on_command_line() -> Iterator[None]:
    """Context manager: texts of errors and warnings are shown with options, not with parameters."""
    _options_shown.append(True)
    try:
        yield
    finally:
        _options_shown.pop()


def as_shown(text: str) -> str:
    """Return the text of an error or warning as its reader knows options and data."""
    text = MADE_OF_ROWS.sub("rows in memory", MADE_OF_TABLE.sub(r"\1", text))
    return text if _options_shown else OPTION.sub(_parameter, text)


def _parameter(option):
    if option[2] is None:
        return option[0]
    name = option[2].replace("-", "_")
    return f"{name}=False" if option[1] else name


class BcmdistError(Exception):
    """Base of all errors of this package.

    Each is also the builtin exception that it resembles, such as ValueError; its only argument is its text.

    Examples
    --------
    >>> try:
    ...     bcmdist.Settings(query=-1)
    ... except bcmdist.BcmdistError as error:
    ...     isinstance(error, ValueError)
    True
    """

    def __str__(self):
        return as_shown(super().__str__())


class InvalidOption(BcmdistError, ValueError):
    """An option or a hyper-parameter has a value that cannot be used."""


class InvalidRequest(BcmdistError, ValueError):
    """What is stored or sent as a request is none."""


class InvalidData(BcmdistError, ValueError):
    """Data hold a value, or have a shape, that no model can use."""


class InvalidDtype(BcmdistError, TypeError):
    """An array holds something else than real numbers."""


class MisalignedChunks(InvalidData):
    """Chunks of `X` and of a row-wise companion array cut across each other."""


class SameRows(InvalidData):
    """A partition holds the rows of another one that was absorbed; it would count twice."""


class UnsupportedTarget(InvalidData):
    """A target lies outside the support of the likelihood."""


class DataChanged(BcmdistError, ValueError):
    """Rows are not the ones that were surveyed before."""


class ChunkConflict(DataChanged):
    """A partition that was absorbed comes again under its key with other rows."""


class DataDamaged(BcmdistError, OSError):
    """A chunk of an array cannot be decoded or does not match its checksum."""


class MissingChunk(DataDamaged):
    """A chunk of an array, or an entry of a stream, is not stored."""


class CorruptChunk(DataDamaged):
    """A stored chunk is not the one that was written, or is none at all."""


class UnsafeData(BcmdistError, ValueError):
    """Data that would run code, leave their place, or take far more memory than they say; nothing was decoded."""


class SourceUnreachable(BcmdistError, OSError):
    """A source of data did not answer, after retries."""


class DataNotFound(BcmdistError, FileNotFoundError):
    """A path or URL holds no Zarr group with the named arrays."""


class DataExists(BcmdistError, FileExistsError):
    """An output would overwrite something."""


class DiskFull(BcmdistError, OSError):
    """A disk, or a quota on it, has no room for what was to be written."""


class ModelNotFound(BcmdistError, FileNotFoundError):
    """A path holds no model directory."""


class ModelExists(BcmdistError, FileExistsError):
    """A model directory already holds another model."""


class CommitConflict(BcmdistError, FileExistsError):
    """Another writer has made the commit that this one was about to make, or another model lies under the path; nothing
    was written."""


class CommitRefused(BcmdistError, ValueError):
    """What was to be committed is nothing that a reader would accept; nothing was committed."""


class ModelsDiffer(BcmdistError, ValueError):
    """Two models cannot be joined, because they differ or share data."""


class ModelDamaged(BcmdistError, OSError):
    """A model directory holds something that does not match its checksum, or that no model can hold."""


class StorageUnreachable(BcmdistError, OSError):
    """An object store does not answer, or refuses."""


class StoreIgnoresConditions(BcmdistError, OSError):
    """An object store overwrites what a conditional put must leave alone: a commit could be lost on it."""


class NotPositiveDefinite(BcmdistError, ValueError):
    """A matrix that must be a covariance is not positive definite."""


class NotAFile(BcmdistError, OSError):
    """A pipe, device, socket, directory or file stands where something else should; nothing was read from it."""


class NotFinite(BcmdistError, ArithmeticError):
    """A prediction is no finite number; nothing of it was written."""


class LaplaceNotConverged(BcmdistError, ArithmeticError):
    """Newton's iteration for the mode of an expert did not converge."""


class EPNotConverged(BcmdistError, ArithmeticError):
    """Expectation propagation within an expert did not converge."""


class MemoryLimit(BcmdistError, MemoryError):
    """A task would need more memory than it may use; nothing was run."""


class SchedulerUnreachable(BcmdistError, TimeoutError):
    """No Dask scheduler, or no worker, answered in time."""


class SchedulerLost(SchedulerUnreachable):
    """The Dask scheduler, or every worker, went away while it worked; what was committed is safe."""


class CertificateRefused(BcmdistError, ConnectionError):
    """A scheduler does not take our certificate or shows one that we do not take, or one side speaks no TLS."""


class WorkerCannotRead(BcmdistError, OSError):
    """A Dask worker does not see the data or the model under the client's path."""


class VersionMismatch(BcmdistError, RuntimeError):
    """Workers, client or a stored model come from different versions of the software."""


class WorkerLost(BcmdistError, RuntimeError):
    """A partition was given up because workers died while they computed it."""


class PoisonChunk(WorkerLost):
    """A partition was given up because every worker that computed it died, also where nothing else was to blame."""


class JobNotFound(BcmdistError, FileNotFoundError):
    """A jobs directory holds no job of that id."""


class JobDamaged(BcmdistError, ValueError):
    """What is stored of a job is not what a job writes."""


class JobRefused(BcmdistError, RuntimeError):
    """What was asked of a job cannot be done in the state it is in, or it did not start."""


class ServiceRefused(BcmdistError, ConnectionError):
    """A service does not answer, or refuses a request for a reason of its own, such as a token or too many rows."""


class MissingExtra(BcmdistError, ImportError):
    """An optional package is needed for what was asked."""


class BcmdistWarning(UserWarning):
    """Something the user should know that does not stop the work."""

    def __str__(self):
        return as_shown(super().__str__())
