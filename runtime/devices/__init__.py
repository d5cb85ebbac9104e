"""Devices: found, named, configured and extended; the Core that loads networks on them."""
