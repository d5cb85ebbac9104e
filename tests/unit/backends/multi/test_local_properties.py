"""What the devices inside of others are given on this machine alone stays here."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

import aioinfer

TEXT = (
    '<ir_version: 9, opset_import: ["": 20]> g (float[b, 4] x) => (float[b, 4] y) { y = Relu (x) }'
)


@pytest.mark.parametrize("device", ["MULTI:REFERENCE", "HETERO:REFERENCE", "BATCH:REFERENCE(4)"])
def test_no_export_holds_folders_of_devices_inside(device: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    config = {"DEVICE_PROPERTIES": {"REFERENCE": {"CACHE_DIR": folder}}}
    with aioinfer.Core() as core:
        with core.load_network(parser.parse_model(TEXT), device, config) as network:
            blob = network.export()
        assert folder.encode() not in blob
        core.import_network(blob).close()
