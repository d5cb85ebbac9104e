"""MULTI: one model on several devices, among which its requests are balanced."""
