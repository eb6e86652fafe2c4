#!/usr/bin/env python3
"""Sends the frames of a capture (classic pcap, little-endian, Ethernet) as they are.

    send.py CAPTURE DEVICE|SOCKET

DEVICE is a network device, SOCKET the path of a socket that takes a frame a datagram.
"""

import os
import socket
import struct
import sys
import time

PAUSE = 0.001   # so that no queue on the way is too short


def frames(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] != b"\xd4\xc3\xb2\xa1":
        sys.exit(f"send.py: {path} is not a little-endian pcap with microseconds")
    at = 24
    while at < len(data):
        _, _, captured, length = struct.unpack_from("<IIII", data, at)
        if captured != length:
            sys.exit(f"send.py: a frame of {path} is cut")
        yield data[at + 16:at + 16 + captured]
        at += 16 + captured


capture, device = sys.argv[1:]
if os.sep in device:
    wire = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    wire.connect(device)
else:
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    wire.bind((device, 0))
count = 0
for frame in frames(capture):
    wire.send(frame)
    count += 1
    time.sleep(PAUSE)
print(f"{count} frames sent")
