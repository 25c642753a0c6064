"""Cost estimates of a fit before it runs: times of single tasks, and how often a fit repeats them."""
