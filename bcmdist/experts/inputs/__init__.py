"""Inputs that were seen with normal errors: where those were that rows were measured at, as an expert believes."""
