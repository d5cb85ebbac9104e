"""Rewrites of what numbers are held in."""
