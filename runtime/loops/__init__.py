"""Event loops: waking them, giving them their turn, closing and side tasks on them."""
