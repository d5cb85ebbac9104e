"""HETERO, MULTI and BATCH: where they cut, what they balance, what they join."""
