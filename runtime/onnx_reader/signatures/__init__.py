"""What ONNX's operators take and give, as tables that need no onnx."""
