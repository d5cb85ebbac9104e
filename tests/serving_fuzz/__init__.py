"""Wrong requests by the ten thousand: at the protocol, at the application, and at sockets."""
