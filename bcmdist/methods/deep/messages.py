"""Messages about the last layer of a deep Gaussian process, linearised at the trained layers.

Each non-Gaussian row has a site exp(nu f - tau f^2 / 2) that gives the trained layers' belief N(m, v) in f the moments
of belief times likelihood (expectation propagation; SYSTEMS D9):

    tau = t / (1 - v t),    t = (d log Z / dm)^2 - 2 d log Z / dv,    nu = (1 + v tau) d log Z / dm + tau m

with Z = E p(y | f), for each class separately where there are several. A site depends only on the row and the layers,
so messages add and subtract exactly, in one pass. Linearising at the mode would be worse: where classes are well
separated the belief around the mode is much wider than the trained one (training rows of new_thyroid have log
probabilities of -.08 with modes, and -.03 with these sites).
"""

import numpy as np

from bcmdist.experts.laplace import site_message
from bcmdist.experts.message import Message, stacked
from bcmdist.experts.residual import kind_of
from bcmdist.methods.deep.classes import log_averages
from bcmdist.model.likelihoods.tilted import tilted_site

LEAST_LEFT = 1e-6  # lower bound of the variance that one row leaves, as a share; less is an error of the expectation


def trained_message(shared, likelihood, X, obs) -> Message:
    """Message of the rows X (n, D), n >= 1, by their sites: eta (S,), or (C, S) for C classes.

    Parameters
    ----------
    shared : `Deep`
    """
    m, v = shared.believed(X)
    log_z, tau, nu = _of_classes(likelihood, obs, m, v) if likelihood.per_class else _of_one(likelihood, obs, m, v)
    # Constant of each site: log Z minus the log of the site's average.
    shrunk = 1.0 + tau * v
    average = 0.5 * ((2.0 * nu * m + nu**2 * v - tau * m**2) / shrunk - np.log(shrunk))
    V = shared.design(X)
    Lam, constant = kind_of(shared).residual(shared, V, X), log_z - average.sum()
    each = [site_message(V, Lam, t, n, 0.0) for t, n in zip(tau.T, nu.T, strict=True)]
    message = stacked(each) if likelihood.per_class else each[0]
    return Message(message.eta, message.precision, message.evidence + float(constant), len(X))


def _of_one(likelihood, obs, m, v):
    """The sum of log Z; tau and nu, (n, 1) each."""
    log_z, tau, nu = tilted_site(likelihood, obs, m[:, 0], v[:, 0])
    return log_z.sum(), tau[:, None], nu[:, None]


def _of_classes(likelihood, obs, m, v):
    """As `_of_one` for classes, (n, C) each; a row of weight w counts w times."""
    log_z, to_m, to_v = log_averages(obs.y, 1.0, m, v)
    shrink = np.maximum(to_m**2 - 2.0 * to_v, 0.0)
    tau = shrink / np.maximum(1.0 - v * shrink, LEAST_LEFT)
    nu = (1.0 + v * tau) * to_m + tau * m
    return log_z @ obs.weight, tau * obs.weight[:, None], nu * obs.weight[:, None]
