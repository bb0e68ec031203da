"""Sends recorded IPv4 packets at their times, and stays until they have passed: `replay.py SECONDS`.

arrivals.txt has a line for each packet: its time in s, and its bytes in hexadecimal.
"""

import pathlib
import socket
import sys
import time

#: Of Linux; the socket module does not have it. Root may exceed net.core.wmem_max.
SO_SNDBUFFORCE = 32

arrivals = [line.split() for line in pathlib.Path("arrivals.txt").read_text().splitlines()]
wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
# Packets that wait in a queueing discipline count for their socket: `sendto` would wait for a queue of more than the
# default of 208 KiB of memory.
wire.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 256 << 20)
began = time.monotonic()
for at_s, packet in arrivals:
    time.sleep(max(began + float(at_s) - time.monotonic(), 0.0))
    data = bytes.fromhex(packet)
    wire.sendto(data, (socket.inet_ntoa(data[16:20]), 0))
time.sleep(max(began + float(sys.argv[1]) - time.monotonic(), 0.0))
