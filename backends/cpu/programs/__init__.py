"""Plans bound to streams: programs, teams of threads, arrays of a run."""
