"""What the examples with pictures share: a network, and pictures to give it."""
