"""``aioinfer tune``: the search for the fastest configuration, and what it found."""
