"""The sentence encoder all-MiniLM-L6-v2 as an ONNX model, from the weights of a Python package."""
