"""Fetches the file and prints its size."""

import socket
import sys

with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    size_bytes = 0
    while part := connection.recv(65536):
        size_bytes += len(part)
print(f'{{"bytes": {size_bytes}}}')
