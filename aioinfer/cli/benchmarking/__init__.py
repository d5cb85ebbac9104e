"""``aioinfer benchmark``: requests in a row or in flight, their times, tables and figures."""
