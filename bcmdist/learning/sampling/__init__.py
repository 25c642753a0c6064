"""Sampled hyper-parameters: stored chains of Hamiltonian Monte Carlo, and their convergence diagnostics."""
