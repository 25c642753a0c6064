"""Inputs with normal measurement errors: experts average over posterior draws of the true inputs."""
