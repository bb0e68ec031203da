"""Report cards: senders on the paths of RFC 9743, held against standard senders (docs/report-card.md)."""
