"""What a node costs, in operations and in bytes, and how long a device takes for that."""

from .device_speed import DeviceSpeed
from .node_costs import NodeCost, Shapes, crossing_bytes, node_cost, value_bytes

__all__ = ["DeviceSpeed", "NodeCost", "Shapes", "crossing_bytes", "node_cost", "value_bytes"]
