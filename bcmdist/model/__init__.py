"""What all experts agree on before the first message: kernel, likelihood, mean, units, shared variables."""
