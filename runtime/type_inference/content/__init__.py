"""What small tensors hold of lengths: which content a node gives, by what it computes."""
