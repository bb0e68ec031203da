"""The results site."""
