"""What each native kernel touches of its operands, by its parameters: a rule a kernel."""
