"""A mixture of committees with different kernels, each partition assigned softly (GBCM paper, sections 6.8 and 5.3).

Partition i belongs to committee k with probability r_ik, which its message is weighted with. Given the others,

    r_ik = p(y_i | messages of committee k without i) / sum over k

so that a partition goes where the others predict it best. A new point is predicted by the committees with the
probabilities of the partition that it lies in. The paper describes no such experiment; this is the nearest simple one.
"""

from collections.abc import Sequence

import numpy as np

from bcmdist.committee.committee import Committee
from bcmdist.experts.message import Message

ITERATIONS = 10


def assigned(messages: Sequence[Sequence[Message]]) -> tuple[list[Committee], np.ndarray, float]:
    """Committees, probabilities (M, K) of each partition's committee, and the sum of the committees' log evidences.

    Parameters
    ----------
    messages : K sequences of the M partitions' messages, each under the kernel of one committee
    """
    partitions = list(zip(*messages, strict=True))
    share = np.full((len(partitions), len(messages)), 1.0 / len(messages))
    committees = [weighted(of_kernel, column) for of_kernel, column in zip(messages, share.T, strict=True)]
    for _ in range(ITERATIONS):
        for i, of_partition in enumerate(partitions):
            pairs = list(zip(committees, of_partition, share[i], strict=True))
            without = [committee.withdraw(message.weighted(part)) for committee, message, part in pairs]
            both = list(zip(without, of_partition, strict=True))
            gain = [committee.absorb(message).log_evidence - committee.log_evidence for committee, message in both]
            share[i] = np.exp(np.array(gain) - np.logaddexp.reduce(gain))
            added = zip(both, share[i], strict=True)
            committees = [committee.absorb(message.weighted(part)) for (committee, message), part in added]
    return committees, share, sum(committee.log_evidence for committee in committees)


def weighted(messages: Sequence[Message], weights) -> Committee:
    """The committee of messages that count `weights` (M,) times."""
    first, *others = (message.weighted(weight) for message, weight in zip(messages, weights, strict=True))
    return Committee(sum(others, first))
