"""Moves of elements: as strides, earlier where that is cheaper, gone where they cancel."""
