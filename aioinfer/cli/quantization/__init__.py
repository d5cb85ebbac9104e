"""``aioinfer quantize``: onnxruntime's quantizer, and what it changes in the outputs."""
