"""Search: the place of a campaign's space where something happens (docs/search.md)."""
