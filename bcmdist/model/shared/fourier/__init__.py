"""Equispaced Fourier features: weights of waves on a grid of frequencies, whose Gram matrix is Toeplitz."""
