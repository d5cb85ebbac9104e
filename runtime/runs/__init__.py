"""A run on its way: admission, slot, and its stages in a line, as a graph, or inline."""
