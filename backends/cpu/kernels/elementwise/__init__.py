"""Operators that compute each element on its own, alone and in fused groups."""
