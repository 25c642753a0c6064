"""Predictions at uncertain inputs."""
