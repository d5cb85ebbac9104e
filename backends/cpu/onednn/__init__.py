"""oneDNN: where the library is, and its objects, numbers and layouts in Python."""
