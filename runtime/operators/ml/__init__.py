"""Operators of ai.onnx.ml: trees, linear models, support vectors, features."""
