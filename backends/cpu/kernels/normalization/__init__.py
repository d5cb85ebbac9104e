"""Operators that look at many elements for each result: norms, softmax, reductions."""
