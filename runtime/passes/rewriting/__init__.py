"""What a pass is, what it sees of a graph, and how its patches are checked and applied."""
