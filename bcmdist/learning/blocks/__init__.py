"""Blocks of rows from which hyper-parameters are learned."""
