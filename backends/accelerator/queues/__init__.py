"""Drivers and their in-order queues, as executors see them."""
