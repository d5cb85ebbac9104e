"""The same Core and devices as for HETERO."""

from unit.backends.hetero.conftest import core, mock

__all__ = ["core", "mock"]
