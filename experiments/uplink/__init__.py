"""From a capture of one's own line to advice on an ack filter (docs/ack-filter.md)."""
