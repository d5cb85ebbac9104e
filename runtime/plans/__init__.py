"""Plans by shape and content: found, kept, bounded, and where their buffers lie."""
