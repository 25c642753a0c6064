"""Hyper-parameters by sampling: Hamiltonian Monte Carlo, its chains and whether they agree."""
