"""The controller's side of the agent protocol (see agents.service for the routes)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from agents.errors import AgentError

#: Shows that a request comes from the holder (agents.service).
TOKEN_HEADER = "X-Backchannel-Token"


class AgentClient:
    """One agent, reached over its UNIX socket (a forwarded one for a remote host).

    Every method raises AgentError with the agent's own sentence, prefixed with the node's name.
    """

    def __init__(self, node: str, socket: Path, timeout_s: float = 30.0) -> None:
        self.node = node
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://agent", timeout=timeout_s
        )

    def close(self) -> None:
        """Lets go of the connection."""
        self._http.close()

    def health(self) -> dict[str, Any]:
        """What the agent says of itself and its node."""
        return self._call("GET", "/health")

    def settings(self, sysctls: dict[str, str], offloads: list[str]) -> dict[str, Any]:
        """Applies kernel settings; returns what the kernel then says."""
        return self._call("POST", "/settings", {"sysctls": sysctls, "offloads": offloads})

    def start_captures(self, interfaces: list[dict[str, Any]], snaplen: int) -> None:
        """Returns when every interface is being captured."""
        self._call("POST", "/captures", {"interfaces": interfaces, "snaplen": snaplen})

    def stop_captures(self) -> list[dict[str, Any]]:
        """Counters of each capture: interface, path, captured, received, dropped."""
        return list(self._call("DELETE", "/captures")["captures"])

    def begin(self, at_monotonic_ns: int) -> None:
        """Tells the node's receivers when the run begins, by its own clock."""
        self._call("POST", "/begin", {"at_monotonic_ns": at_monotonic_ns})

    def start_traffic(self, name: str, program: str, options: dict[str, Any]) -> None:
        """Starts a traffic program."""
        self._call("POST", "/traffic", {"name": name, "program": program, "options": options})

    def wait_traffic(self, name: str, timeout_s: float) -> dict[str, Any]:
        """Report of a program that ends of itself within `timeout_s`."""
        return self._call("GET", f"/traffic/{name}?timeout_s={timeout_s}", timeout_s=timeout_s + 5)

    def running_traffic(self) -> set[str]:
        """Programs that have not ended yet."""
        return set(self._call("GET", "/traffic")["running"])

    def stop_traffic(self, name: str) -> dict[str, Any]:
        """Stops a program; its report."""
        return self._call("DELETE", f"/traffic/{name}")

    def fetch(self, name: str, to: Path) -> None:
        """Copies a file of the agent's folder to `to`."""
        try:
            with self._http.stream("GET", f"/files/{name}") as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise self._refusal(answer)
                with to.open("wb") as file:
                    for chunk in answer.iter_bytes():
                        file.write(chunk)
        except httpx.HTTPError as error:
            raise self._silence(error) from error

    def hold(self, holder: str, lease_s: float) -> None:
        """Makes the node this controller's alone, until `release`, or until it is silent for that long."""
        self._http.headers[TOKEN_HEADER] = self._call("POST", "/lock", {"holder": holder, "lease_s": lease_s})["token"]

    def release(self, timeout_s: float | None = None) -> None:
        """Ends everything on the node and lets go of it."""
        # The token stays, and is void: what other threads still ask for is refused.
        self._call("DELETE", "/lock", timeout_s=timeout_s)

    def clock(self) -> dict[str, int]:
        """The node's clocks now: realtime_ns, monotonic_ns. Renews the lease."""
        return {key: int(value) for key, value in self._call("GET", "/clock").items()}

    def network(self, interfaces: list[dict[str, str]], batch: list[str], give: bool) -> None:
        """Gives the experiment's interfaces their addresses, neighbours and routes, or takes them until `release`."""
        self._call("POST", "/network", {"interfaces": interfaces, "batch": batch, "give": give})

    def configure_link(self, spec: dict[str, Any], seed: int, macs: list[str]) -> None:
        """An emulated link's parameters for the next run; `macs` of the stations at its ends."""
        self._call("POST", "/links", {"spec": spec, "seed": seed, "macs": macs})

    def start_links(self, at_monotonic_ns: int) -> None:
        """Begins the links' timeline at an instant of the node's own clock."""
        self._call("POST", "/links/start", {"at_monotonic_ns": at_monotonic_ns})

    def stop_links(self) -> dict[str, Any]:
        """Ends it; the emulator's report."""
        return dict(self._call("DELETE", "/links")["report"])

    def shape(self, interface: str, lines: list[str]) -> None:
        """Sets up the kernel's disciplines on an interface, by arguments of tc."""
        self._call("POST", "/shaping", {"interface": interface, "lines": lines})

    def shaped(self, interface: str) -> dict[str, dict[str, int]]:
        """What they counted: packets, bytes and drops at the "root" and in "delayed"."""
        return self._call("GET", f"/shaping/{interface}")

    def reset(self) -> None:
        """Ends everything on the node and empties its folder."""
        self._call("DELETE", "/run")

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
        try:
            answer = self._http.request(method, path, json=body, timeout=timeout)
        except httpx.HTTPError as error:
            raise self._silence(error) from error
        if answer.status_code != 200:
            raise self._refusal(answer)
        return self._content(answer)

    def _content(self, answer: httpx.Response) -> dict[str, Any]:
        try:
            return dict(answer.json())
        except (TypeError, ValueError) as error:
            said = answer.text.strip()[:80] or "nothing"
            raise AgentError(f"{self.node}: its agent's answer cannot be read: {said}") from error

    def _refusal(self, answer: httpx.Response) -> AgentError:
        return AgentError(f"{self.node}: {self._content(answer).get('error', answer.text)}", answer.status_code)

    def _silence(self, error: httpx.HTTPError) -> AgentError:
        # Some errors have no words.
        return AgentError(f"{self.node}: its agent does not answer ({str(error) or type(error).__name__})")
