"""What a start costs: by the ways to come by a compiled network, in one process and in new ones."""
