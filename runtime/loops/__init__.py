"""Event loops: how they are woken, how they get their turn, and side tasks on them."""
