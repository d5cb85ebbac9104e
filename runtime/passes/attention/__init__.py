"""Attention as exporters write it, found by its scores and heads, and made one node."""
