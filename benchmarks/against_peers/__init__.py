"""The same models on ours, onnxruntime and OpenVINO, each in a process of its own, in turns."""
