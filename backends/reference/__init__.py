"""The REFERENCE device: ONNX on numpy, one node at a time; the oracle for every other device."""
