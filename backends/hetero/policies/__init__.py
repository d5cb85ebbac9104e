"""Where nodes go when a policy places them by what they cost on each device: pure."""
