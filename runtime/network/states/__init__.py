"""Inputs that a request's own last run feeds: which they are, and what each request keeps."""
