"""Pictures of what a model has learned and of how far its predictions can be trusted (the extra `plot`)."""
