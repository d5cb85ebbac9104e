"""What inputs of new shapes cost: new lengths, and states that grow."""
