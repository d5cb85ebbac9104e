"""The command line: ``aioinfer COMMAND``. Imported by ``__main__`` only."""
