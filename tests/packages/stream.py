"""Sends numbered packets at one network device and counts them at another until it is told to end, and says which are missing.

    stream.py FROM TO RATE       ends with the end of its input; exits with 1 if a packet is missing
"""

import select
import socket
import struct
import sys
import time

# Local experimental EtherType 1 of IEEE 802.
ETHER_TYPE = 0x88B5
# Of asm-generic/socket.h; Python has no name for it.
SO_RCVBUFFORCE = 33
# Longest that a packet may be on its way.
PATIENCE = 5.0
# After a pause so many are sent without a look at what has come: more would not find room in the kernel's backlog.
BURST = 16


def open_socket(device):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE))
    opened.bind((device, ETHER_TYPE))
    return opened


def receive(receiver, seen):
    while True:
        try:
            frame, address = receiver.recvfrom(2048, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if address[2] != socket.PACKET_OUTGOING:
            seen.append(struct.unpack_from("!Q", frame, 14)[0])


def main():
    source, sink, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
    sender, receiver = open_socket(source), open_socket(sink)
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    header = bytes.fromhex("020000000002020000000001") + struct.pack("!H", ETHER_TYPE)
    seen, sent, began = [], 0, time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        due = int((time.monotonic() - began) * rate)
        for _ in range(min(BURST, due - sent)):
            sender.send(header + struct.pack("!Q", sent) + bytes(38))
            sent += 1
        receive(receiver, seen)
        time.sleep(0.5 / rate)
    end = time.monotonic() + PATIENCE
    while len(seen) < sent and time.monotonic() < end:
        receive(receiver, seen)
        time.sleep(0.01)
    missing = sorted(set(range(sent)) - set(seen))
    print(f"{sent} packets sent, {len(seen)} received, {len(seen) - len(set(seen))} of them again, {len(missing)} missing {missing[:10]}")
    sys.exit(sent == 0 or bool(missing) or len(seen) != sent)


main()
