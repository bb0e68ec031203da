"""`./backchannel shell`: people's own programs behind an emulated line."""
