"""What a node costs, in operations and in bytes, and how long a device takes for that."""

from .device_speed import DeviceSpeed
from .node_costs import NodeCost, Shapes, crossing_bytes, node_cost, value_bytes
from .numpy_costs import NUMPY, numpy_s
from .supposed_shapes import supposed_shapes

__all__ = [
    "NUMPY",
    "DeviceSpeed",
    "NodeCost",
    "Shapes",
    "crossing_bytes",
    "node_cost",
    "numpy_s",
    "supposed_shapes",
    "value_bytes",
]
