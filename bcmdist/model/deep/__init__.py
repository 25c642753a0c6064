"""Gaussian processes of Gaussian processes: what a layer makes of an uncertain input, and of what rows say about it."""
