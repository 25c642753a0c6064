"""Sampled hyper-parameters as chains of ArviZ. See `bcmdist.api.interop.arviz`."""

from bcmdist.api.interop.arviz import to_inference_data as to_inference_data
