"""The protocol over HTTP: an ASGI application, and what stands before it on a socket."""
