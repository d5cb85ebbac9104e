"""Operators that put elements elsewhere, as a view where that will do."""
