"""Properties of devices and networks: their types, parsers and values."""
