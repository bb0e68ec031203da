"""From captures to figures: metrics, statistics and the results store."""
