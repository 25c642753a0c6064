"""Equispaced Fourier features: weights of a grid of frequencies, whose Gram matrix is Toeplitz."""
