"""Live kernel settings with their original values."""

from __future__ import annotations

from ansible_collections.backchannel.testbed.plugins.module_utils.host import HostError, read

#: As sysctl(8) has it: a dot in the name of an interface, such as eth0.100, is a slash in that of a setting.
SWAPPED = str.maketrans("./", "/.")


def path_of(name):
    """The file of a sysctl."""
    return "/proc/sys/" + name.translate(SWAPPED)


def of_interface(protocol, interface, key):
    """The name of a setting of an interface; the protocol is ipv4 or ipv6."""
    return f"net.{protocol}.conf.{interface.translate(SWAPPED)}.{key}"


def apply_sysctls(changes, originals, settings):
    """Sets live kernel settings and records their original values."""
    for name, value in sorted(settings.items()):
        old = read(path_of(name))
        if old is None:
            raise HostError(f"this kernel has no setting {name}")
        if old.split() == str(value).split():
            continue
        if changes.add(f"{name} = {' '.join(old.split())}", f"{name} = {value}"):
            originals.record("sysctl " + name, old.strip())
            write_sysctl(name, value)


def restore_sysctls(changes, originals):
    """Restores the recorded values."""
    for key in sorted(originals.values):
        if key.startswith("sysctl "):
            restore_sysctl(changes, originals, key[len("sysctl ") :])


def restore_sysctl(changes, originals, name):
    """Restores one value, if it was recorded."""
    value, old = originals.values.get("sysctl " + name), read(path_of(name))
    if value is None or old is None or old.split() == value.split():
        return
    if changes.add(f"{name} = {' '.join(old.split())}", f"{name} = {value}"):
        write_sysctl(name, value)


def write_sysctl(name, value):
    """Writes a live setting and verifies it."""
    path = path_of(name)
    try:
        with open(path, "w") as file:
            file.write(str(value))
    except OSError as error:
        raise HostError(f"the kernel rejected {name} = {value}: {error.strerror}") from None
    if (read(path) or "").split() != str(value).split():
        raise HostError(f"the kernel did not keep {name} = {value}")
