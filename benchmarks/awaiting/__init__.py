"""What awaiting a request costs beside the computing: calls, time, lags of the event loop."""
