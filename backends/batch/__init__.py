"""BATCH: joins requests that wait for a device into one run of several rows."""
