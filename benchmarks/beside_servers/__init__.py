"""Services over HTTP and gRPC beside the same on others' servers and engines."""
