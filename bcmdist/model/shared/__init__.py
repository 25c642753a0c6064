"""The variables that all experts share, whitened."""
