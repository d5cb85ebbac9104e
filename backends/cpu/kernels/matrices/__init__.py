"""Operators made of matrix multiplications, and what is fused into them."""
