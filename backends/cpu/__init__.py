"""The device CPU: oneDNN, one native call per inference."""
