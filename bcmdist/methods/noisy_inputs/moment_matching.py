"""The message of rows whose inputs are one of several equally likely draws (SYSTEMS T23, T24, the expert).

Given the draw X_k of the inputs, message and prior give the shared variables the posterior N(m_k, C_k). The mixture
over draws has the moments

    m = mean m_k,    C = mean (C_k + m_k m_k') - m m'

and the message that turns the prior N(0, I) into these moments has precision C^-1 - I and eta = C^-1 m. A single draw
gives its own message. Where draws disagree by more than the prior variance there is no information: variances are
limited to 1.

The evidence of the prior with this message is the mean of log p(y | X_k) (eq. 4.38).
"""

from collections.abc import Sequence

import numpy as np

from bcmdist import linalg
from bcmdist.experts.message import Message
from bcmdist.model.shared.belief import Factored, factored


def matched(messages: Sequence[Message]) -> Message:
    """The moment-matched message of several equally likely ones, for a single process."""
    if len(messages) == 1:
        return messages[0]
    process = [factored(one.eta, one.precision) for one in messages]
    means = np.array([belief.mean for belief in process])
    mean = means.mean(axis=0)
    covariance = np.mean([linalg.inverse(belief.factor) for belief in process], axis=0)
    covariance += linalg.gram(means - mean) / len(means)
    variance, axes = np.linalg.eigh(covariance)
    precision = 1.0 / np.minimum(variance, 1.0)
    along = axes.T @ mean
    evidence = np.mean([_log_evidence(*each) for each in zip(messages, process, strict=True)])
    correction = 0.5 * (np.log(precision).sum() - precision @ along**2)
    information = linalg.gram((axes * np.sqrt(precision - 1.0)).T)
    return Message(axes @ (precision * along), information, float(evidence + correction), messages[0].rows)


def _log_evidence(message: Message, belief: Factored) -> float:
    """log p(y) of one message with the prior."""
    return float(message.evidence + 0.5 * (message.eta @ belief.mean - belief.log_determinant))
