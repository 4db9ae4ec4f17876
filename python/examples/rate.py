#!/usr/bin/env python3
"""Measures how many frames a second one thread receives, for each way to receive.

Usage: rate.py [SWITCH:PORT [SECONDS]], while something sends to the port, for example

    ringway gen tx lan0:sender --dst lan0:rate --rate max
"""

import sys
import time

import ringway


def measure(port: ringway.Port, way: str, seconds: float) -> tuple[float, float]:
    """Frames per second by wall clock, and per second of processor time of this thread."""
    receive = getattr(port, way)
    count, began, busy = 0, time.monotonic(), time.thread_time()
    while time.monotonic() - began < seconds:
        count += len(receive(256, timeout=1))
    return count / (time.monotonic() - began), count / (time.thread_time() - busy)


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "lan0:rate"
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    with ringway.Port(name) as port:
        for way in ("recv", "recv_bytes"):
            by_clock, by_processor = measure(port, way, seconds)
            print(f"{way}: {by_clock / 1e6:.2f} million frames per second, {by_processor / 1e6:.2f} per second of processor time")


if __name__ == "__main__":
    main()
