"""The rungs of the ladder: ``python -m gpu.rungs NAME`` climbs one, and fails loudly."""
