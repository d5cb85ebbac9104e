"""Scales, shifts and pads moved into the weights and attributes of what is next to them."""
