"""Sends recorded IPv4 packets at their times, and stays until they have passed: `replay.py SECONDS`.

arrivals.txt has a line for each packet: its time in s, and its bytes in hexadecimal.
"""

import pathlib
import socket
import sys
import time

arrivals = [line.split() for line in pathlib.Path("arrivals.txt").read_text().splitlines()]
wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
began = time.monotonic()
for at_s, packet in arrivals:
    time.sleep(max(began + float(at_s) - time.monotonic(), 0.0))
    data = bytes.fromhex(packet)
    wire.sendto(data, (socket.inet_ntoa(data[16:20]), 0))
time.sleep(max(began + float(sys.argv[1]) - time.monotonic(), 0.0))
