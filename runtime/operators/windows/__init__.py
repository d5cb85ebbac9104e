"""Operators of windows that move over a picture: convolutions, pools and norms of neighbours."""
