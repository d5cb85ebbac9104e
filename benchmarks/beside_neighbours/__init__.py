"""What else a machine does while a network runs, and what the network pays for it."""
