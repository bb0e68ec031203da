"""Campaigns: the file format, what it expands to, the engine that runs it, and the command line."""
