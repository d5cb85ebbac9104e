"""Files as bytes: protobuf's wire format, and what it holds without the weights."""
