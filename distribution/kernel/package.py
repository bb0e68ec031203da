"""Linux for Backchannel's virtual time: files only (testbed.virtual_kernel.kernels finds them)."""
