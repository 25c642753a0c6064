"""Hyper-parameters by sampling: the chains of Hamiltonian Monte Carlo and whether they agree."""
