"""Any model, by onnx's own means: inlined, converted, named, and built as our graph."""
