"""The administration of a switch: HTTP on the daemon's control socket."""

import http.client
import json
import socket as sockets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar, cast
from urllib.parse import quote, urlencode

from . import api
from ._native import Error
from ._paths import control_socket

T = TypeVar("T")


class ApiError(Error):
    """The daemon cannot be reached, or has refused a request; then nothing has changed. The text is the daemon's."""

    def __init__(self, text: str, status: int | None = None, mistakes: list[api.Mistake] | None = None) -> None:
        super().__init__(text)
        self.status = status
        """The status of the answer, like 404; ``None`` if there was none."""
        self.mistakes: list[api.Mistake] = mistakes or []
        """The mistakes in keys: the key, what is wrong with it, and what would be right."""


class _Connection(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.close()
            raise


class Client:
    """A connection to the daemon's administration API. It is a context manager.

    >>> import ringway
    >>> with ringway.Client() as client:
    ...     client.add_port("vm1", switch="lan0", kind="process")
    ...     client.set_port("vm1", ingress={"rate": "1Gbit"})
    ...     print([(port["name"], port["state"]) for port in client.ports()])
    ...     client.delete_port("vm1")
    ['added switch lan0', 'added port vm1 to switch lan0']
    ['changed port vm1']
    [('vm1', 'waiting')]
    ['removed port vm1', 'removed switch lan0']

    `socket` is the daemon's ``control.sock``, by default what ``RINGWAY_CONTROL_SOCKET`` names, or that of the runtime
    directory. `timeout` in seconds is for each wait for the daemon.

    Answers are dictionaries with the types in `ringway.api`. The keys of ports, switches and buckets are those of the
    configuration file. Changes return one line for each step. A request that is refused raises `ApiError`, and changes
    nothing. A client is for one thread.
    """

    def __init__(self, socket: str | None = None, *, timeout: float | None = 30) -> None:
        self._socket = control_socket() if socket is None else socket
        self._timeout = timeout
        self._connection = _Connection(self._socket, timeout)

    # What there is.

    def status(self) -> api.Status:
        """Everything at one moment: ports, counters, drops, switches, buckets, pollers, captures, faults.

        >>> ringway.Client().status()["ports"]
        []
        """
        return cast(api.Status, self._ask("GET", "/v1/status"))

    def ports(self) -> list[api.PortStatus]:
        """All ports."""
        return cast(list[api.PortStatus], self._ask("GET", "/v1/ports"))

    def port(self, name: str) -> api.PortStatus:
        """The port with this name, or ``SWITCH:PORT`` where several switches have one.

        >>> with ringway.Port("lan0:a"):
        ...     print(ringway.Client().port("lan0:a")["kind"])
        process
        >>> ringway.Client().port("b")
        Traceback (most recent call last):
        ringway.ApiError: there is no port b
        """
        switch, _, port = name.rpartition(":")
        found = [one for one in self.ports() if one["name"] == port and switch in ("", one["switch"])]
        if len(found) > 1:
            places = ", ".join(f"{one['switch']}:{one['name']}" for one in found)
            raise ApiError(f"there are several ports {name}: {places}", 404)
        if not found:
            raise ApiError(f"there is no port {name}", 404)
        return found[0]

    def switches(self) -> list[api.SwitchStatus]:
        """All switches."""
        return self.status()["switches"]

    def addresses(self, switch: str | None = None) -> list[api.FdbEntry]:
        """The addresses that switches know, or one of them."""
        query = "" if switch is None else "?" + urlencode({"switch": switch})
        return cast(list[api.FdbEntry], self._ask("GET", "/v1/fdb" + query))

    def config(self) -> api.ConfigStatus:
        """The running configuration, and what commands and programs changed of the file.

        >>> print(ringway.Client().config()["changed"], end="")
        # No command has changed what the file says.
        """
        return cast(api.ConfigStatus, self._ask("GET", "/v1/config"))

    def metrics(self) -> str:
        """The metrics in Prometheus' text format.

        >>> "ringway_uptime_seconds" in ringway.Client().metrics()
        True
        """
        return self._exchange("GET", "/metrics").decode()

    def openapi(self) -> dict[str, Any]:
        """The description of all requests, answers and fields."""
        return cast(dict[str, Any], self._ask("GET", "/openapi.json"))

    # Changes.

    def add_port(self, name: str, keys: Mapping[str, Any] | None = None, /, **more: Any) -> list[str]:
        """Adds a port: its name and its keys, as a mapping or as arguments (``switch="lan0", kind="tap"``)."""
        return self._change("POST", "/v1/ports", {"name": name} | dict(keys or {}) | more)

    def set_port(self, name: str, keys: Mapping[str, Any] | None = None, /, **more: Any) -> list[str]:
        """Changes keys of a port while frames flow."""
        return self._change("PATCH", f"/v1/ports/{_part(name)}", dict(keys or {}) | more)

    def delete_port(self, name: str) -> list[str]:
        """Removes a port."""
        return self._change("DELETE", f"/v1/ports/{_part(name)}")

    def enable_port(self, name: str) -> list[str]:
        """Enables a port that is disabled, or ends its pause."""
        return self._change("POST", f"/v1/ports/{_part(name)}/enable")

    def set_switch(self, name: str, keys: Mapping[str, Any] | None = None, /, **more: Any) -> list[str]:
        """Changes keys of a switch."""
        return self._change("PATCH", f"/v1/switches/{_part(name)}", dict(keys or {}) | more)

    def tell(self, switch: str, text: str) -> list[str]:
        """Gives the forwarding program of a switch a message."""
        return self._change("POST", f"/v1/switches/{_part(switch)}/tell", {"text": text})

    def set_bucket(self, name: str, keys: Mapping[str, Any] | None = None, /, **more: Any) -> list[str]:
        """Makes or changes a bucket that ports share."""
        return self._change("PUT", f"/v1/buckets/{_part(name)}", dict(keys or {}) | more)

    def delete_bucket(self, name: str) -> list[str]:
        """Removes a bucket that no port has."""
        return self._change("DELETE", f"/v1/buckets/{_part(name)}")

    def reset_config(self) -> list[str]:
        """Drops what commands and programs changed of the configuration file."""
        return self._change("POST", "/v1/config/reset")

    def reload(self) -> list[str]:
        """Makes the daemon read its configuration file again."""
        return self._change("POST", "/v1/reload")

    # Captures.

    @contextmanager
    def capture(self, port: str, **options: int | str | bool) -> Iterator[BinaryIO]:
        """The frames of a port as pcapng, while they flow: a file to read from. The capture ends with the context.

        The options are those of ``GET /v1/ports/NAME/capture``, like ``count=10``.

        >>> with ringway.Port("lan0:a") as a, ringway.Port("lan0:b") as b:
        ...     with ringway.Client().capture("a", count=1) as pcapng:
        ...         a.send(b"\\xff" * 6 + b"\\2" * 54)
        ...         pcapng.read()[:4].hex()
        1
        '0a0d0d0a'
        """
        # A connection of its own, as the answer has no end.
        connection = _Connection(self._socket, None)
        query = {key: str(value).lower() if isinstance(value, bool) else value for key, value in options.items()}
        try:
            with _unreachable(self._socket):
                connection.request("GET", f"/v1/ports/{_part(port)}/capture?{urlencode(query)}")
                answer = connection.getresponse()
            if answer.status != 200:
                raise _refusal(answer.status, answer.read())
            yield cast(BinaryIO, answer)
        finally:
            connection.close()

    def end_capture(self, number: int) -> list[str]:
        """Ends a capture: its number is its `id` in the status."""
        return self._change("DELETE", f"/v1/captures/{number:d}")

    # The connection.

    def _change(self, method: str, path: str, keys: Mapping[str, Any] | None = None) -> list[str]:
        return cast(api.Done, self._ask(method, path, keys))["changes"]

    def _ask(self, method: str, path: str, keys: Mapping[str, Any] | None = None) -> Any:
        return json.loads(self._exchange(method, path, keys))

    def _exchange(self, method: str, path: str, keys: Mapping[str, Any] | None = None) -> bytes:
        body = None if keys is None else json.dumps(keys)
        with _unreachable(self._socket):
            fresh = self._connection.sock is None
            try:
                answer = self._request(method, path, body)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # The daemon was restarted since the last request, or had closed an idle connection.
                if fresh:
                    raise
                answer = self._request(method, path, body)
            text = answer.read()
        if answer.status >= 400:
            raise _refusal(answer.status, text)
        return text

    def _request(self, method: str, path: str, body: str | None) -> http.client.HTTPResponse:
        try:
            self._connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            return self._connection.getresponse()
        except BaseException:
            # Nothing of a request that failed may answer the next one.
            self._connection.close()
            raise

    def close(self) -> None:
        """Closes the connection. The next request makes another."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _part(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe=":")


@contextmanager
def _unreachable(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise ApiError(f'no answer at {path}: {error} (is "ringway run" running?)') from error


def _refusal(status: int, body: bytes) -> ApiError:
    try:
        refusal = cast(api.Refusal, json.loads(body))
        return ApiError(refusal["error"], status, refusal.get("mistakes"))
    except (ValueError, KeyError, TypeError):
        return ApiError(body.decode(errors="replace") or f"status {status}", status)
