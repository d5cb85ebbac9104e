"""Which node goes to which device by wishes and support, and the subgraphs that follow: pure."""
