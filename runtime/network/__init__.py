"""What users hold: networks, requests, their states, deadlines and streams of results."""
