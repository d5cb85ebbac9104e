"""The command line: ``aioinfer devices | query | benchmark``. Imported by ``__main__`` only."""
