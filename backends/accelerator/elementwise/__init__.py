"""Fused elementwise groups as expressions of kernel C."""
