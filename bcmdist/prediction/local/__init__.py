"""Local prediction: the committee's posterior combined with the training rows around each new point."""
