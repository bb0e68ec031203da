"""One module for each group of commands. Each parses arguments, calls what does the work, and prints the answer.

Modules that are slow to import are imported by the command that needs them, so that `--help` and `--version` stay fast.
"""
