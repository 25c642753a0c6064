"""Equispaced Fourier features: weights on a grid of frequencies, whose Gram matrix is Toeplitz plus Hankel."""
