"""The ONNXRUNTIME device: an onnxruntime session as a device, on any of its execution providers."""
