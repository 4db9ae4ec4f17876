"""A daemon for the tests of a class, and ports on it."""

import faulthandler
import os
import platform
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from collections.abc import Callable

import ringway

BINARY = os.environ.get("RINGWAY", os.path.join(os.path.dirname(__file__), "../../target/tests/ringway"))
LIMIT = 20.0
"""Seconds after which a test does not wait longer."""


class Daemon:
    """A daemon with a runtime directory of its own. `config` is TOML."""

    def __init__(self, config: str = "") -> None:
        self.directory = tempfile.mkdtemp(prefix="ringway-python-")
        self.attach = os.path.join(self.directory, "attach.sock")
        self.control = os.path.join(self.directory, "control.sock")
        path = os.path.join(self.directory, "ringway.toml")
        with open(path, "w") as file:
            file.write(config)
        self.process = subprocess.Popen(
            [BINARY, "run", "--runtime-dir", self.directory, "--config", path], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], LIMIT)
        line = self.process.stdout.readline() if readable else b"(nothing)"
        if not line.startswith(b"ready"):
            self.stop()
            raise RuntimeError(f"the daemon said {line!r}, not ready")

    def environment(self) -> dict[str, str]:
        return {"RINGWAY_ATTACH_SOCKET": self.attach, "RINGWAY_CONTROL_SOCKET": self.control}

    def switch(self) -> int:
        """The process of the switch, below its keeper."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as children:
            return int(children.read().split()[0])

    def stop(self, by: int = signal.SIGTERM) -> None:
        self.process.send_signal(by)
        self.process.wait(LIMIT)

    def end(self) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Scene(unittest.TestCase):
    """Tests on one daemon."""

    config = ""
    daemon: Daemon

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = Daemon(cls.config)
        cls.addClassCleanup(cls.daemon.end)
        before = dict(os.environ)
        os.environ.update(cls.daemon.environment())
        cls.addClassCleanup(lambda: (os.environ.clear(), os.environ.update(before)))

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        # A test that hangs says where, and ends the run.
        faulthandler.dump_traceback_later(300, exit=True)
        try:
            return super().run(result)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def port(self, name: str, **options: object) -> ringway.Port:
        """A port that is gone after the test."""
        port = ringway.Port(name, **options)  # type: ignore[arg-type]
        # The test's own close is what it tests.
        self.addCleanup(port._close, True)
        return port

    def pair(self, **options: object) -> tuple[ringway.Port, ringway.Port]:
        """Two ports of a switch of their own."""
        switch = self.id().rsplit(".", 1)[1][-12:].strip("_").replace("_", "-")
        return self.port(f"{switch}:a", **options), self.port(f"{switch}:b", **options)

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Waits until something holds."""
        end = time.monotonic() + LIMIT
        while not holds():
            self.assertLess(time.monotonic(), end, f"not within {LIMIT} s: {what}")
            time.sleep(0.005)


EPOLL_WAITS = {"x86_64": ("232", "281", "441"), "aarch64": ("22", "441")}[platform.machine()]
"""Numbers of the system calls that wait for an epoll instance."""


def sleeps(thread: threading.Thread) -> bool:
    """Whether a thread sleeps for its port."""
    # One look by the kernel, and not several: a thread that waits for the interpreter's lock sleeps, too, elsewhere.
    with open(f"/proc/self/task/{thread.native_id}/syscall") as file:
        return file.read().split()[0] in EPOLL_WAITS


def frame(number: int = 0, length: int = 60) -> bytes:
    """A broadcast frame that carries a number."""
    head = b"\xff" * 6 + b"\x02\0\0\0\0\x01" + b"\x88\xb5" + number.to_bytes(4, "big")
    return head.ljust(length, b".")


def number_of(received: memoryview | bytes) -> int:
    """The number that `frame` put in."""
    return int.from_bytes(bytes(received[14:18]), "big")


def collect(port: ringway.Port, count: int) -> list[bytes]:
    """Exactly `count` frames, as copies."""
    frames: list[bytes] = []
    end = time.monotonic() + LIMIT
    while len(frames) < count and time.monotonic() < end:
        frames += port.recv_bytes(count - len(frames), timeout=0.1)
    return frames
