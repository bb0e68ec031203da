"""The campaign language: what a campaign file may say, and how it expands to runs."""
