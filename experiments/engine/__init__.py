"""The campaign engine: which runs are made, where, how many at once, and what becomes of each."""
