"""Dask's own TLS settings, and the cause of a failed connection."""

from __future__ import annotations

import dask

from testbed.errors import Unavailable


def protocol() -> str:
    """The protocol of Dask's settings: "tls" if they require encryption, otherwise "tcp"."""
    return "tls" if dask.config.get("distributed.comm.require-encryption") else "tcp"


def check_encryption(address: str, role: str) -> None:
    """Checks a scheduler's address against Dask's settings. A mismatch would end in a traceback of Dask's.

    Args:
        address: of the scheduler.
        role: client or worker.

    Raises:
        Unavailable: they do not match.
    """
    encrypted = address.startswith("tls://")
    if protocol() == "tls" and not encrypted:
        raise Unavailable(
            f"Dask's settings require encryption, so the scheduler's address must begin with tls://; it is {address}"
        )
    names = ("ca-file", f"{role}.cert", f"{role}.key")
    unset = [name for name in names if not dask.config.get(f"distributed.comm.tls.{name}", None)]
    if encrypted and unset:
        variable = "DASK_DISTRIBUTED__COMM__TLS__" + unset[0].replace(".", "__").replace("-", "_").upper()
        raise Unavailable(
            f"no Dask scheduler answers at {address} without a certificate: ${variable} is not set "
            "(docs/distributed.md)"
        )


def http_settings(port: int | None) -> dict[str, object]:
    """Dask's settings for the HTTP servers of a scheduler and its workers, which Dask opens in any case.

    Args:
        port: of the scheduler's pages and metrics, encrypted where connections are; None: servers have no pages, and
            the callers bind them to loopback.
    """
    settings: dict[str, object] = {"distributed.worker.http.routes": []}
    if port is None:
        return {**settings, "distributed.scheduler.http.routes": []}
    if protocol() == "tls":
        settings_of_comm = "distributed.comm.tls"
        for name, source in (("cert", "scheduler.cert"), ("key", "scheduler.key"), ("ca-file", "ca-file")):
            settings[f"distributed.scheduler.dashboard.tls.{name}"] = dask.config.get(f"{settings_of_comm}.{source}")
    return settings


def root_cause(error: BaseException) -> str:
    """Message of the first exception in a chain. The others only say that there is no connection."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return message_of(error)


def message_of(error: BaseException) -> str:
    """An exception's message, or its type if it has none."""
    return str(error) or type(error).__name__
