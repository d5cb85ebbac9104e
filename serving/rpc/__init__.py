"""The protocol over gRPC: its messages, and a service of a few lines around what is pure."""
