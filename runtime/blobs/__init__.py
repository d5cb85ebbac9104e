"""Exported networks: named frames in a file, and graphs and networks as records in them."""

from ...errors import BlobError as BlobError  # fails if this folder is imported as a top level
