"""What runs leave behind: spans, durations, statistics, and the timeline that shows them."""
