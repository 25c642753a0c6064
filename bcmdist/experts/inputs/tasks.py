"""Messages of partitions whose inputs were seen with errors, with ledger entries that name what was made of these."""

from dataclasses import dataclass

import numpy as np

from bcmdist.experts.contributions import Contribution, densities_of
from bcmdist.experts.expert import expert_message
from bcmdist.experts.inputs.clean import cleaned
from bcmdist.experts.inputs.density import Beliefs, Seen
from bcmdist.experts.inputs.draws import drawn
from bcmdist.experts.inputs.message import averaged
from bcmdist.model.loading import load_model
from bcmdist.model.model import Model
from bcmdist.model.targets import model_observations
from bcmdist.storage.commits import BlobReference, Reference, open_store
from bcmdist.storage.fields import check_array, damaged
from bcmdist.storage.ledger import Entry

# Draws of each partition, and trajectories before the first of them.
DRAWS, BURN_IN = 20, 60


@dataclass(frozen=True)
class NoisyExpert:
    """The message of a partition at inputs as it believes them, times the partition's weight.

    A partition without state is heard for the first time: what it believes of its inputs follows from its rows and the
    model, and is kept as a blob; storing it twice stores the same. One with state repeats its message.
    """

    model: Reference

    def __call__(self, part, rows):
        model, store = load_model(self.model), open_store(self.model.url)
        obs = model_observations(model, part, rows.obs)
        if part.state:
            name = part.state
            versions = load_versions(BlobReference(self.model.url, name), part.rows, model.inputs)
        else:
            versions = believed_inputs(model, part, rows, obs)
            name = store.put_arrays({"": versions})[""]
        message = averaged([expert_message(model.shared, model.likelihood, X, obs) for X in versions])
        densities = densities_of(model.likelihood, obs)
        entry = Entry(part.key, rows.digest, part.rows, part.weight, state=name, densities=densities)
        return Contribution(message.weighted(part.weight), {part.key: entry})


def believed_inputs(model: Model, part, rows, obs) -> np.ndarray:
    """Equally likely versions of the true inputs of a partition, scaled, (K, n, D), whatever the way they were learned.

    Draws begin where cleaning has ended; their seed is that of the model and the content of the rows. The one version
    where cleaning has ended would be too certain: targets have moved inputs to where both fit, which is no measurement.
    (Of sin(x) / x, 200 rows with inputs off by .77, eight seeds, 95 % bands of it held the function .63 of the time.)
    """
    errors = model.input_errors
    assert errors is not None, "an expert of models that know of errors"
    seen = Seen(model.scaling.inputs(rows.X), errors.roots(part, rows, model.scaling), obs)
    beliefs = Beliefs(model.shared.kernel, model.shared.mean, model.likelihood)
    steps = cleaned(beliefs, seen, errors.highest)
    seed = [errors.seed, int(rows.digest[:15], 16)]
    return seen.at(drawn(beliefs, seen, steps, count=DRAWS, burn_in=BURN_IN, seed=seed).steps)


def load_versions(reference: BlobReference, rows: int, inputs: int) -> np.ndarray:
    """What `believed_inputs` was for a partition of so many rows.

    Raises
    ------
    ModelDamaged
    """
    array = open_store(reference.url).get_array(reference.digest)
    where = f"{reference.url}: blob {reference.digest[:12]}"
    if array.ndim != 3 or len(array) == 0:
        raise damaged(where, "versions of inputs (K, n, D)", f"shape {array.shape}")
    check_array(array, where, "inputs", shape=(len(array), rows, inputs))
    return array
