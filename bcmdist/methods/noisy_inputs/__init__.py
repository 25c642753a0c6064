"""Inputs with Gaussian measurement errors: experts average over posterior draws of the true inputs."""
