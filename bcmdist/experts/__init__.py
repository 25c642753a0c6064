"""Experts: compute the message of a partition from its rows."""
