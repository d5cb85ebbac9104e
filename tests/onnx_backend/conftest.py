"""Leaves out, before it is read, what another device's run of the suite is about."""

import os

_DEVICE = os.environ.get("AIOINFER_CONFORMANCE_DEVICE", "REFERENCE")
_DEVICES = {
    "test_partitioned.py": "REFERENCE",
    "test_two_kinds.py": "HETERO:ONNXRUNTIME,REFERENCE",
}

collect_ignore = [name for name, device in _DEVICES.items() if device != _DEVICE]
