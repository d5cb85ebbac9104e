"""Engines beside ours, each in a process of its own, and what their turns say."""
