"""The Open Inference Protocol without sockets: bytes in, messages out. Pure."""
