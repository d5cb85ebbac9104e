"""Models in which sizes or the flow depend on data: planned pieces between steps in numpy."""
