"""Ordinary models, read without onnx."""
