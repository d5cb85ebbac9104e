"""Type rules, one family of operators a file; each registers when the first rule is asked for."""
