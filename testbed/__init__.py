"""What the network is: addressing, cells, the Mininet backend, calibration, the fidelity guard."""
