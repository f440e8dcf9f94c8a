"""Seconds, rows a second and memory, and whether all libraries and devices give the same numbers."""
