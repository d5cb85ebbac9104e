"""Operators of images: resizing, regions and boxes."""
