"""Deep Gaussian processes: how layers begin, climb the energy of all rows, and are put side by side."""
