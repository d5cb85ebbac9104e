"""Plans: values placed in buffers, steps and their bounds, packed weights."""
