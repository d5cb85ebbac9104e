"""Ensembles of decision trees of ai.onnx.ml, and what classifiers do with their scores."""
