"""Load what experts need besides the model: the shared values to linearise at, and EP sites."""

import numpy as np

from bcmdist.experts.ep import Sites, sites_from_array
from bcmdist.experts.expert import zero_message
from bcmdist.model.model import Model
from bcmdist.storage.commits import BlobReference, load_array, open_store
from bcmdist.storage.fields import check_array


def load_values(reference: BlobReference, model: Model) -> np.ndarray:
    """Shared values at which rows are linearised, (S,), or (C, S) for C processes."""
    values, shared, processes = load_array(reference), model.shared, model.likelihood.processes
    stored = zero_message(shared, model.likelihood).eta.shape
    each = shared.size // max(1, len(shared.members))
    shape = (processes, each) if processes > 1 else (shared.size,)
    where = f"{reference.url}: blob {reference.digest[:12]}"
    check_array(values, where, "shared values", shape=shape if values.shape == shape else stored)
    return values.reshape(shape)


def load_sites(reference: BlobReference, rows) -> Sites:
    """EP sites of a partition of `rows` rows."""
    array = open_store(reference.url).get_array(reference.digest)
    check_array(array, f"{reference.url}: blob {reference.digest[:12]}", "sites", shape=(2, rows + 1))
    return sites_from_array(array)
