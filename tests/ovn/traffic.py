"""What workloads of the network do, and what of it succeeds."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
import urllib.request

from network import FLOATING, LOAD_BALANCER, OUTSIDE

CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def inside(space):
    """What opens sockets meanwhile is in a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(file):
        if libc.setns(file, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    own, other = os.open("/proc/self/ns/net", os.O_RDONLY), os.open(f"/run/netns/{space}", os.O_RDONLY)
    enter(other)
    try:
        yield
    finally:
        enter(own)
        os.close(own)
        os.close(other)


def pings(space, address, count):
    """How many of so many pings are answered."""
    said = subprocess.run(["ip", "netns", "exec", space, "ping", "-q", "-i", "0.05", "-W", "3", "-c", str(count), address],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    return int(re.search(r"(\d+) received", said)[1])


class Pings:
    """Pings that go on."""

    lost = 0


@contextlib.contextmanager
def ping_on(space, address):
    """Pings meanwhile, ten times a second, and then knows how many were lost."""
    process = subprocess.Popen(["ip", "netns", "exec", space, "ping", "-q", "-i", "0.1", address], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    result = Pings()
    try:
        yield result
    finally:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        sent, received = re.search(r"(\d+) packets transmitted, (\d+) received", process.communicate()[0]).groups()
        result.lost = int(sent) - int(received)


def pages(space, url, count):
    """How many of so many pages come, each by a connection of its own."""
    got = 0
    with inside(space):
        for _ in range(count):
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(url, timeout=3) as page:
                    got += len(page.read()) == int(page.headers["Content-Length"])
    return got


class Kind:
    """A kind of traffic."""

    def __init__(self, words, play, count, expected=None):
        self.words = words
        self.count = count
        self.expected = count if expected is None else expected
        self.play = lambda: play(count)


def kinds():
    def ping(space, address):
        return lambda count: pings(space, address, count)

    def page(space, url):
        return lambda count: pages(space, url, count)

    return [
        Kind("ping, one switch, one chassis", ping("a", "10.1.0.2"), 100),
        Kind("ping, routed to another chassis", ping("a", "10.2.0.1"), 100),
        Kind("pages, routed to another chassis", page("a", "http://10.2.0.1/page"), 20),
        Kind("4 MB, routed to another chassis", page("b", "http://10.2.0.2/bulk"), 2),
        Kind("pages of the load balancer", page("e", f"http://{LOAD_BALANCER}/page"), 20),
        Kind("pages of a host outside, translated", page("a", f"http://{OUTSIDE}/page"), 20),
        Kind("pages for a host outside, by a floating address", page("outside", f"http://{FLOATING}/page"), 20),
        Kind("pages that an access list forbids", page("a", "http://10.2.0.1:81/page"), 2, expected=0),
    ]
