"""Independent oracles, written as plainly as the papers: dense matrices, inverses allowed."""

import numpy as np
from numpy.linalg import inv, slogdet, solve
from scipy.linalg import block_diag
from scipy.special import erf


def full_gp(kernel, H, X, y, noise, Xs):
    """Dense GP regression with mean weights N(0, I): mean, covariance at Xs, log evidence."""

    def cov(A, B):
        return kernel.cross(A, B) + H(A) @ H(B).T

    S = cov(X, X) + np.diag(np.broadcast_to(noise, len(X)))
    Ks = cov(Xs, X)
    mean = Ks @ solve(S, y)
    covariance = cov(Xs, Xs) - Ks @ solve(S, Ks.T)
    evidence = -0.5 * (y @ solve(S, y) + slogdet(S)[1] + len(y) * np.log(2 * np.pi))
    return mean, covariance, evidence


def several_outputs(B, kernel, X, number, y, noise, mean_variance, Xs, numbers):
    """Dense GP regression of P outputs at places X: cov(f_a(x), f_b(z)) = B[a, b] k(x, z) + [a = b] mean_variance.

    number (n,), numbers (m,): outputs of the rows and of the predictions; noise (P,). Mean and covariance at Xs.
    """

    def cov(A, a, C, c):
        return B[np.ix_(a, c)] * kernel.cross(A, C) + mean_variance * (a[:, None] == c)

    S = cov(X, number, X, number) + np.diag(noise[number])
    Ks = cov(Xs, numbers, X, number)
    return Ks @ solve(S, y), cov(Xs, numbers, Xs, numbers) - Ks @ solve(S, Ks.T)


def pitc(kernel, Xq, blocks, ys, noise, Xs):
    """Dense PITC (Quinonero-Candela & Rasmussen 2005): mean and variance at Xs, log evidence."""
    mean, covariance, evidence = pitc_joint(kernel, Xq, blocks, ys, noise, Xs)
    return mean, np.diag(covariance), evidence


def pitc_joint(kernel, Xq, blocks, ys, noise, Xs):
    """Dense PITC: mean and covariance at Xs, log evidence."""
    Kqq = kernel.cross(Xq, Xq)
    X, y = np.vstack(blocks), np.concatenate(ys)
    Kq = kernel.cross(X, Xq)
    S = Kq @ solve(Kqq, Kq.T)
    start = 0
    for block in blocks:
        rows = slice(start, start + len(block))
        S[rows, rows] = kernel.cross(block, block)
        start += len(block)
    S += noise * np.eye(len(X))
    Qs = kernel.cross(Xs, Xq) @ solve(Kqq, Kq.T)
    mean = Qs @ solve(S, y)
    covariance = kernel.cross(Xs, Xs) - Qs @ solve(S, Qs.T)
    return mean, covariance, -0.5 * (y @ solve(S, y) + slogdet(S)[1] + len(y) * np.log(2 * np.pi))


def pitc_covariance(kernel, H, Xq, jitter, blocks):
    """Covariance of f at all rows in the PITC model, with mean weights N(0, I)."""
    X = np.vstack(blocks)
    Kq = kernel.cross(X, Xq)
    C = Kq @ solve(kernel.cross(Xq, Xq) + jitter * np.eye(len(Xq)), Kq.T)
    start = 0
    for block in blocks:
        rows = slice(start, start + len(block))
        C[rows, rows] = kernel.cross(block, block)
        start += len(block)
    return C + H(X) @ H(X).T


def through_query_sets(kernel, mean, noise, points, parts, Xs):
    """Mean and variance of f at Xs, where partitions speak through some of the query points each.

    parts : (rows of the query points that the partition was absorbed through, X, y) of each partition
    """
    prior = kernel.cross(points, points)
    Q, P = len(points), mean.weights(points.shape[1])
    precision = np.zeros((Q + P, Q + P))
    precision[:Q, :Q] = inv(prior)
    precision[Q:, Q:] = np.eye(P)
    shift = np.zeros(Q + P)
    for some, X, y in parts:
        own = points[some]
        A = np.zeros((len(X), Q + P))
        A[:, some] = kernel.cross(X, own) @ inv(kernel.cross(own, own))
        A[:, Q:] = mean.design(X)
        R = kernel.cross(X, X) - A[:, some] @ kernel.cross(own, X) + noise * np.eye(len(X))
        precision += A.T @ solve(R, A)
        shift += A.T @ solve(R, y)
    b = np.hstack([kernel.cross(Xs, points) @ inv(prior), mean.design(Xs)])
    residual = kernel.diagonal(Xs) - np.einsum("ij,ji->i", b[:, :Q], kernel.cross(points, Xs))
    return b @ solve(precision, shift), residual + np.einsum("ij,ji->i", b, solve(precision, b.T))


def expert_posterior(kernel, Xq, X, y, psi):
    """GBCM paper, eqs. 6-7: mean and covariance of f^q given one module; psi (n,) or (n, n)."""
    S = kernel.cross(X, X) + (np.diag(psi) if np.ndim(psi) < 2 else psi)
    Kqm = kernel.cross(Xq, X)
    return Kqm @ solve(S, y), kernel.cross(Xq, Xq) - Kqm @ solve(S, Kqm.T)


def committee_by_inverses(prior, means, covariances):
    """GBCM paper, eqs. 4-5: mean and covariance of f^q."""
    C = -(len(means) - 1) * inv(prior) + sum(inv(c) for c in covariances)
    return solve(C, sum(solve(c, m) for c, m in zip(covariances, means, strict=True))), inv(C)


def kalman_posterior_form(prior, means, covariances):
    """GBCM paper, section 6.2: recursion over module posteriors; mean and covariance of f^q."""
    A, S = np.zeros(len(prior)), prior.copy()
    for m, c in zip(means, covariances, strict=True):
        K = S @ inv(S + c)
        A = A + K @ (m - A)
        S = S - K @ (S + c) @ K.T
    k = len(means)
    mean = prior @ solve(prior / k - S, A) / k
    return mean, S @ inv(prior - k * S) @ prior


def kalman_measurement_form(prior, designs, residuals, ys):
    """GBCM paper, Appendix B (E in place of the misprinted f^q): mean and covariance of f^q."""
    E, S = np.zeros(len(prior)), prior.copy()
    for A, R, y in zip(designs, residuals, ys, strict=True):
        G = S @ A.T @ inv(A @ S @ A.T + R)
        E = E + G @ (y - A @ E)
        S = S - G @ A @ S
    return E, S


def laplace(K, likelihood, obs, steps=200):
    """Mode, weights and pseudo-targets by undamped Newton with explicit division (easy cases)."""
    f = np.zeros(len(K))
    for _ in range(steps):
        w = likelihood.curvature(obs, f)
        pseudo = f + likelihood.score(obs, f) / w
        new = K @ solve(K + np.diag(1 / w), pseudo)
        if np.max(np.abs(new - f)) < 1e-14:
            break
        f = new
    w = likelihood.curvature(obs, f)
    return f, w, f + likelihood.score(obs, f) / w


def laplace_evidence(K, likelihood, obs, f):
    """log p(y|f) - f'K^-1 f / 2 - log|I + K W| / 2 at the mode f (Rasmussen & Williams 2006, eq. 3.32)."""
    w = likelihood.curvature(obs, f)
    return likelihood.log_density(obs, f).sum() - 0.5 * f @ solve(K, f) - 0.5 * slogdet(np.eye(len(f)) + K * w)[1]


def central_differences(function, theta, step=1e-5):
    """Gradient of a scalar function."""
    return np.array([(function(theta + h) - function(theta - h)) / (2 * step) for h in step * np.eye(len(theta))])


def normal_prior_posterior_of_a_gp(X, y, *, prior, low, high, count):
    """By quadrature on a grid: mean (3,) and sd (3,) of log v0, log w, log v1 of an `se` process with noise.

    Each has the normal prior (mean, sd). Also the largest share of the mass in an outermost layer of the grid.
    """
    axis = np.linspace(low, high, count)
    squares = (X[:, None, 0] - X[:, 0]) ** 2
    density = np.empty((count,) * 3)
    for j, log_w in enumerate(axis):
        values, vectors = np.linalg.eigh(np.exp(-0.5 * np.exp(log_w) * squares))
        spectrum = np.exp(axis)[:, None, None] * values.clip(0.0) + np.exp(axis)[:, None]
        density[:, j] = -0.5 * (np.log(spectrum) + (vectors.T @ y) ** 2 / spectrum).sum(axis=-1)
    log_prior = -0.5 * ((axis - prior[0]) / prior[1]) ** 2
    density += log_prior[:, None, None] + log_prior[:, None] + log_prior
    density = np.exp(density - density.max())
    density /= density.sum()
    margins = np.array([density.sum(axis=(1, 2)), density.sum(axis=(0, 2)), density.sum(axis=(0, 1))])
    mean = margins @ axis
    return mean, np.sqrt(margins @ axis**2 - mean**2), margins[:, [0, -1]].max()


def linear_regression(Phi, y, noise, Phis):
    """Weights N(0, I) of columns: mean and covariance of the function at Phis (Rasmussen & Williams 2006, 2.8-2.9)."""
    covariance = inv(Phi.T @ Phi / noise + np.eye(Phi.shape[1]))
    return Phis @ covariance @ Phi.T @ y / noise, Phis @ covariance @ Phis.T


def independent_rest(V, rest, y, noise, Vs, rests):
    """y ~ N(0, V V' + diag(rest) + noise I), FITC for any columns V: mean and variance at Vs, log evidence.

    What new rows have of their own, `rests`, no other row knows of.
    """
    S = V @ V.T + np.diag(rest + noise)
    Ks = Vs @ V.T
    evidence = -0.5 * (y @ solve(S, y) + slogdet(S)[1] + len(y) * np.log(2 * np.pi))
    return Ks @ solve(S, y), (Vs**2).sum(axis=1) + rests - np.diag(Ks @ solve(S, Ks.T)), evidence


def laplace_prediction(K, Ks, prior_variance, likelihood, obs):
    """Mean and variance of f at new points for a dense prior covariance K, Ks with the rows (as `laplace`)."""
    _, w, pseudo = laplace(K, likelihood, obs)
    S = K + np.diag(1 / w)
    return Ks @ solve(S, pseudo), prior_variance - np.diag(Ks @ solve(S, Ks.T))


def network_columns(U, scale, Z):
    """Columns at Z of hidden units erf(U (1, z)) with weights N(0, scale^2), in units of these."""
    return scale * erf(np.column_stack([np.ones(len(Z)), Z]) @ U.T)


def marginalised_network(Phi, noise, y):
    """Paper 000, eqs. 6 and 7, of columns with weights N(0, I): mean and covariance of these, and the log evidence."""
    A = Phi.T @ Phi + noise * np.eye(Phi.shape[1])
    b = solve(A, Phi.T @ y)
    evidence = -0.5 * (y @ y - y @ Phi @ b) / noise - 0.5 * slogdet(A)[1]
    evidence += 0.5 * (Phi.shape[1] * np.log(noise) - len(y) * np.log(2 * np.pi * noise))
    return b, noise * inv(A), evidence


def mixture_of_networks(networks):
    """Paper 000, section IV: mean and covariance of f under the joint posterior of the weights of all networks.

    `networks`: mean and covariance of the weights of each, and its columns at new points.
    """
    K, b = len(networks), np.concatenate([one[0] for one in networks])
    blocks = block_diag(*(covariance + np.outer(mean, mean) for mean, covariance, _ in networks))
    joint, columns = K * blocks - np.outer(b, b), np.hstack([one[2] for one in networks])
    return columns @ b / K, columns @ joint @ columns.T / K**2


def relevance_evidence(Phi, y, alpha, noise):
    """log N(y; 0, s2 I + Phi A^-1 Phi') of a relevance vector machine; s2 may differ by row."""
    K = np.diag(np.broadcast_to(noise, len(y))) + Phi / alpha @ Phi.T
    return -0.5 * (y @ solve(K, y) + slogdet(K)[1] + len(y) * np.log(2 * np.pi))


def relevance_steps(Phi, y, alpha, noise, steps, *, mackay, held=0):
    """EM or MacKay's fixed point for all precisions and the noise (thesis, 2.30-2.32), on the rows themselves."""
    alpha, free = np.array(alpha), len(alpha) - held
    for _ in range(steps):
        Sigma = inv(Phi.T @ Phi / noise + np.diag(alpha))
        mu = Sigma @ Phi.T @ y / noise
        gamma, misfit = 1 - alpha * np.diag(Sigma), np.sum((y - Phi @ mu) ** 2)
        new = gamma / mu**2 if mackay else 1 / (mu**2 + np.diag(Sigma))
        alpha[:free] = new[:free]
        noise = misfit / (len(y) - gamma.sum()) if mackay else (misfit + np.trace(Phi.T @ Phi @ Sigma)) / len(y)
    return alpha, noise


def relevance_apart(Phi, y, alpha, noise, j):
    """s = phi'K^-1 phi and q = phi'K^-1 y of function j, K without it (Faul & Tipping 2002)."""
    others = np.isfinite(alpha) & (np.arange(len(alpha)) != j)
    K = noise * np.eye(len(y)) + Phi[:, others] / alpha[others] @ Phi[:, others].T
    return Phi[:, j] @ solve(K, Phi[:, j]), Phi[:, j] @ solve(K, y)


def relevance_fast(Phi, y, noise, least):
    """One function at a time, that of most gain, until none gains `least`, at given noise: alpha, infinite for out."""
    alpha = np.full(Phi.shape[1], np.inf)

    def share(a, s, q):
        return 0.0 if np.isinf(a) else 0.5 * (np.log(a / (a + s)) + q**2 / (a + s))

    while True:
        found = []
        for j, now in enumerate(alpha):
            s, q = relevance_apart(Phi, y, alpha, noise, j)
            best = s**2 / (q**2 - s) if q**2 > s else np.inf
            found.append((share(best, s, q) - share(now, s, q), best))
        j = int(np.argmax([gain for gain, _ in found]))
        if found[j][0] < least:
            return alpha
        alpha[j] = found[j][1]


def fitc(one, X, y, power):
    """The evidence of power expectation propagation in one layer, with eta and precision of the likelihood of all rows
    (Bui, Yan & Turner 2017)."""
    scaled = (X[:, None] - one.centres) / np.exp(one.log_lengthscale)
    V = np.linalg.solve(one.factor, np.exp(one.log_variance - 0.5 * (scaled**2).sum(axis=2)).T).T
    Lam, noise = np.exp(one.log_variance) - (V**2).sum(axis=1), np.exp(one.log_noise)
    known = power * Lam + noise
    S = V @ V.T + np.diag(known)
    value = -0.5 * (y @ np.linalg.solve(S, y) + np.linalg.slogdet(2 * np.pi * S)[1])
    value -= (1 - power) / (2 * power) * np.log1p(power * Lam / noise).sum()
    return value, V.T @ (y / known), V.T @ (V / known[:, None])
