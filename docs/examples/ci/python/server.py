"""Sends a file to each client."""

import socket
import sys

SIZE_BYTES = 20_000

with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listening:
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(bytes(SIZE_BYTES))
