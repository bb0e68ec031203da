"""Linux in virtual time: a run is one process of User-Mode Linux whose clock jumps from event to event."""
