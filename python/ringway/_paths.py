"""The sockets of the daemon: where a program finds them that does not name one."""

import os


def runtime_directory() -> str:
    """The directory that ``ringway run`` uses by default for this user."""
    if os.geteuid() == 0:
        return "/run/ringway"
    user = os.environ.get("XDG_RUNTIME_DIR", "")
    return os.path.join(user, "ringway") if os.path.isabs(user) else f"/tmp/ringway-{os.geteuid()}"


def attach_socket() -> str:
    """The socket where programs attach: ``RINGWAY_ATTACH_SOCKET``, or the one of the runtime directory."""
    return os.environ.get("RINGWAY_ATTACH_SOCKET") or os.path.join(runtime_directory(), "attach.sock")


def control_socket() -> str:
    """The administration socket: ``RINGWAY_CONTROL_SOCKET``, or the one of the runtime directory."""
    return os.environ.get("RINGWAY_CONTROL_SOCKET") or os.path.join(runtime_directory(), "control.sock")
