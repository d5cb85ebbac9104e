"""Patterns of small operators that devices compute as one."""
