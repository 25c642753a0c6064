"""Load arrays and records by the references in tasks; they are immutable and cached in the process."""

from functools import lru_cache

import numpy as np

from bcmdist.errors import ModelDamaged
from bcmdist.storage.commits import BlobReference, Reference, open_store


@lru_cache(maxsize=8)
def load_array(reference: BlobReference) -> np.ndarray:
    """Load the array of a reference."""
    return open_store(reference.url).get_array(reference.digest)


@lru_cache(maxsize=8)
def load_record(reference: Reference) -> dict:
    """Load the record of a commit.

    Raises
    ------
    ModelDamaged
        The record at this number has another hash: the machine sees another model under the same path.
    """
    store = open_store(reference.url)
    found = store.reference(reference.number)
    if found != reference:
        raise ModelDamaged(
            f"{reference.url}: expected record {reference.digest[:12]} at commit {reference.number}, found "
            f"{found.digest[:12]}; this machine sees another model under the same path: use a shared one"
        )
    return store.record(reference.number)
