"""Elements read and written at the places that data says, with their bounds checked."""
