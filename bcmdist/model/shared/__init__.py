"""The whitened variables that all experts share, and beliefs about them."""
