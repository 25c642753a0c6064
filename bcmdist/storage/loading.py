"""Arrays and records behind the references that tasks carry: what is immutable is read once."""

from functools import lru_cache

import numpy as np

from bcmdist.errors import ModelDamaged
from bcmdist.storage.commits import BlobReference, Reference, open_store


@lru_cache(maxsize=8)
def load_array(reference: BlobReference) -> np.ndarray:
    """The array behind a reference."""
    return open_store(reference.url).get_array(reference.digest)


@lru_cache(maxsize=8)
def load_record(reference: Reference) -> dict:
    """The record of a commit."""
    store = open_store(reference.url)
    found = store.reference(reference.number)
    if found != reference:
        raise ModelDamaged(
            f"{reference.url}: expected record {reference.digest[:12]} at commit {reference.number}, found "
            f"{found.digest[:12]}; this machine sees another model under the same path: use a shared one"
        )
    return store.record(reference.number)
