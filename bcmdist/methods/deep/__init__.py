"""Deep Gaussian processes: initial layers, training by the tied energy of all rows, and mixtures."""
