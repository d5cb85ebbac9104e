"""Memory of an accelerator: what is taken of it, slots, and weights."""
