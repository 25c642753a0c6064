"""Experts about the last layer of a deep Gaussian process: what rows say where training has left it.

Of other than Gaussian rows each has a site exp(nu f - tau f^2 / 2) that gives the belief N(m, v) in f which layers were
trained to the moments of that belief and the row (expectation propagation; SYSTEMS D9):

    tau = t / (1 - v t),    t = (d log Z / dm)^2 - 2 d log Z / dv,    nu = (1 + v tau) d log Z / dm + tau m

with Z = E p(y | f), of each class apart where there are several. It depends on the row and the layers only, so that
messages add and are taken back exactly, in one pass. A mode would not do: where classes are far apart the belief around
it is much wider than that of training (of new_thyroid training rows have log probabilities of -.08, and -.03 so).
"""

import numpy as np

from bcmdist.experts.laplace import site_message
from bcmdist.experts.message import Message, stacked
from bcmdist.experts.residual import kind_of
from bcmdist.methods.deep.classes import log_averages
from bcmdist.model.likelihoods.tilted import tilted_site

LEAST_LEFT = 1e-6  # of a variance, of what one row leaves; less is an error of the average


def trained_message(shared, likelihood, X, obs) -> Message:
    """Message of the rows X (n, D), one or more, by their sites: eta (S,), or (C, S) for C classes.

    Parameters
    ----------
    shared : `Deep`
    """
    m, v = shared.believed(X)
    log_z, tau, nu = _of_classes(likelihood, obs, m, v) if likelihood.per_class else _of_one(likelihood, obs, m, v)
    # Constants of the sites: of each, log Z less the log of its average.
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
    """The same, (n, C) each; a row of weight w says the same w times."""
    log_z, to_m, to_v = log_averages(obs.y, 1.0, m, v)
    shrink = np.maximum(to_m**2 - 2.0 * to_v, 0.0)
    tau = shrink / np.maximum(1.0 - v * shrink, LEAST_LEFT)
    nu = (1.0 + v * tau) * to_m + tau * m
    return log_z @ obs.weight, tau * obs.weight[:, None], nu * obs.weight[:, None]
