"""Operators whose windows slide over images: convolutions and pools."""
