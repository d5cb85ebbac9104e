"""AUTO: the first device that can run a whole model."""
