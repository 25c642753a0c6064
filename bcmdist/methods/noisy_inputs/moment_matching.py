"""What rows say whose inputs are one of several equally likely versions (SYSTEMS T23, T24, the expert).

Given version X_k the message is that of any rows, and with the prior alone it makes the shared variables N(m_k, C_k).
With all versions they have the moments

    m = mean m_k,    C = mean (C_k + m_k m_k') - m m'

and the message is what turns the prior N(0, I) into these: precision C^-1 - I, eta = C^-1 m. Of one version it is its
message. Where versions disagree by more than the prior leaves open, they say nothing: variances are cut at 1.

The evidence that follows, of the prior with the message, is the mean of log p(y | X_k) (eq. 4.38).
"""

from collections.abc import Sequence

import numpy as np

from bcmdist import linalg
from bcmdist.experts.message import Message
from bcmdist.model.shared.belief import Factored, factored


def averaged(messages: Sequence[Message]) -> Message:
    """The message of rows that have said one of these, all equally likely; of one process."""
    if len(messages) == 1:
        return messages[0]
    beliefs = [factored(one.eta, one.precision) for one in messages]
    means = np.array([belief.mean for belief in beliefs])
    mean = means.mean(axis=0)
    covariance = np.mean([linalg.inverse(belief.factor) for belief in beliefs], axis=0)
    covariance += linalg.gram(means - mean) / len(means)
    variance, axes = np.linalg.eigh(covariance)
    precision = 1.0 / np.minimum(variance, 1.0)
    along = axes.T @ mean
    evidence = np.mean([_log_evidence(*each) for each in zip(messages, beliefs, strict=True)])
    rest = 0.5 * (np.log(precision).sum() - precision @ along**2)
    said = linalg.gram((axes * np.sqrt(precision - 1.0)).T)
    return Message(axes @ (precision * along), said, float(evidence + rest), messages[0].rows)


def _log_evidence(message: Message, belief: Factored) -> float:
    """log p(y) of one message with the prior."""
    return float(message.evidence + 0.5 * (message.eta @ belief.mean - belief.log_determinant))
