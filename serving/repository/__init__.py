"""Which networks are served under which names and versions, and how they come and go."""
