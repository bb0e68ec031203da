"""Complete state of network interfaces, and the lines for `ip -batch` that bring it back.

Everything here but `KernelState` is pure: entries are those of `ip -json -details`.
"""

from __future__ import annotations

import json
import os

from ansible_collections.backchannel.testbed.plugins.module_utils.host import HostError, run

FOREVER = 4294967295
#: Lifetime of an address whose lease has ended meanwhile. Routes may depend on it, and its owner can still renew it.
LAST_S = 60
FAMILIES = ("inet", "inet6")
#: Options of `ip` by family. A batch takes them for all of its lines.
FAMILY_OPTION = {"inet": "-4", "inet6": "-6"}
#: Flags of an address that `ip address add` takes.
ADDRESS_FLAGS = ("noprefixroute", "nodad", "mngtmpaddr", "home", "autojoin")
#: Fields of a route that `route_words` writes, and those that say how the route fares at the moment.
ROUTE_FIELDS = {
    *("type", "dst", "from", "gateway", "via", "dev", "table", "protocol", "scope", "prefsrc", "metric", "tos"),
    *("flags", "metrics", "pref", "expires", "nexthops", "cache", "uid", "age"),
}
#: Protocols of routes that the kernel adds itself: with an address, or after a router's advertisement.
KERNEL_PROTOCOLS = ("kernel", "ra", "redirect")


class KernelState:
    """The kernel's present state."""

    def __init__(self):
        self.links = {link["ifname"]: link for link in ip_json(["-details", "address", "show"])}
        families = FAMILIES if os.path.exists("/proc/net/if_inet6") else FAMILIES[:1]
        self.routes = {family: [] for family in FAMILIES}
        self.neighbours = {family: [] for family in FAMILIES}
        for family in families:
            option = FAMILY_OPTION[family]
            self.routes[family] = ip_json([option, "-details", "route", "show", "table", "all"])
            self.neighbours[family] = ip_json([option, "neighbour", "show", "nud", "permanent"])
            self.neighbours[family] += ip_json([option, "neighbour", "show", "proxy"])

    def state(self, name):
        """An interface's state, for `Originals` and the functions below."""
        link = self.links[name]
        return {
            # The address of a tunnel is not one of hardware.
            "mac": link.get("address") if link.get("link_type") == "ether" else None,
            "up": "UP" in link["flags"],
            "addresses": {family: of_family(link["addr_info"], family) for family in FAMILIES},
            "routes": {family: routes_over(self.routes[family], name) for family in FAMILIES},
            "neighbours": {
                family: [entry for entry in self.neighbours[family] if entry["dev"] == name] for family in FAMILIES
            },
        }


def ip_json(words):
    """The parsed answer of `ip -json`."""
    return json.loads(run(["ip", "-json", *words]).strip() or "[]")


def of_family(addresses, family):
    """Addresses that were set, in the kernel's order: of IPv4 the first of a subnet is its primary one."""
    # The kernel makes temporary addresses itself, from those with mngtmpaddr.
    return [entry for entry in addresses if entry["family"] == family and not entry.get("temporary")]


def routes_over(routes, name):
    """Routes over an interface, in all tables, that the kernel does not add by itself."""
    return [
        route
        for route in routes
        if route.get("protocol") not in KERNEL_PROTOCOLS
        and name in [route.get("dev"), *(hop.get("dev") for hop in route.get("nexthops", []))]
    ]


def address_words(entry, name, passed_s=None):
    """Arguments of `ip address add` for one address.

    Args:
        entry: of `addr_info`.
        name: of the interface.
        passed_s: seconds since the address was recorded. None leaves lifetimes out, to compare addresses.
    """
    prefix = entry["prefixlen"]
    words = [f"{entry['local']}/{prefix}"]
    if "address" in entry:
        words = [entry["local"], "peer", f"{entry['address']}/{prefix}"]
    for key in ("broadcast", "label", "scope", "metric"):
        usual = {"label": name, "scope": "global"}.get(key)
        if entry.get(key, usual) != usual:
            words += [key, str(entry[key])]
    # The kernel gives link-local addresses their scope.
    if entry["family"] == "inet6" and entry.get("scope") == "link":
        words = [word for word in words if word not in ("scope", "link")]
    words += [flag for flag in ADDRESS_FLAGS if entry.get(flag)]
    valid_s = entry.get("valid_life_time", FOREVER)
    if passed_s is not None and valid_s != FOREVER:
        left_s = max(LAST_S, int(valid_s - passed_s))
        preferred_s = max(0, min(left_s, int(entry["preferred_life_time"] - passed_s)))
        words += ["valid_lft", str(left_s), "preferred_lft", str(preferred_s)]
    return words


def route_words(route):
    """Arguments of `ip route add` for one route.

    Raises:
        HostError: the route has a property that cannot be restored.
    """
    unknown = sorted(set(route) - ROUTE_FIELDS)
    if unknown:
        raise HostError(
            f"the route to {route['dst']} uses '{unknown[0]}', which teardown could not restore; remove the route first"
        )
    words = [] if route.get("type", "unicast") == "unicast" else [route["type"]]
    words += [route["dst"], *value_words(route, "from", "from"), *hop_words(route)]
    for key, word in (("table", "table"), ("protocol", "proto"), ("scope", "scope"), ("prefsrc", "src")):
        words += value_words(route, key, word)
    words += value_words(route, "metric", "metric") + value_words(route, "tos", "tos")
    for metrics in route.get("metrics", []):
        for key, value in metrics.items():
            words += [key, *(value if isinstance(value, list) else [str(value)])]
    words += value_words(route, "pref", "pref") + value_words(route, "expires", "expires")
    for hop in route.get("nexthops", []):
        words += ["nexthop", *hop_words(hop), *value_words(hop, "weight", "weight")]
    return words


def hop_words(hop):
    """Gateway and interface of a route or of one of its next hops."""
    via = hop.get("via")
    words = ["via", via["family"], via["host"]] if via else value_words(hop, "gateway", "via")
    words += value_words(hop, "dev", "dev")
    return words + (["onlink"] if "onlink" in hop.get("flags", []) else [])


def value_words(entry, key, word):
    """A keyword with its value, if the entry has it."""
    return [word, str(entry[key])] if key in entry else []


def neighbour_words(entry):
    """Arguments of `ip neighbour replace` for a permanent or proxy neighbour."""
    if "proxy" in entry:
        return ["proxy", entry["dst"], "dev", entry["dev"]]
    router = ["router"] if "router" in entry else []
    hardware = value_words(entry, "lladdr", "lladdr")
    return [entry["dst"], *hardware, "dev", entry["dev"], "nud", "permanent", *router]


def described(state, name, family):
    """What an interface has in one family, as sentences for a diff and for comparison."""
    return [
        *(" ".join(["address", *address_words(entry, name)]) for entry in state["addresses"][family]),
        *sorted(" ".join(["neighbour", *neighbour_words(entry)]) for entry in state["neighbours"][family]),
        *sorted(" ".join(["route", *route_words(lasting(route))]) for route in state["routes"][family]),
    ]


def lasting(route):
    """A route without what changes by itself: its remaining time."""
    return {key: value for key, value in route.items() if key != "expires"}


def flush_lines(name, state):
    """Lines that remove every IPv4 entry of an interface. None of them fails where there is nothing."""
    proxies = [entry for entry in state["neighbours"]["inet"] if "proxy" in entry]
    shared = [(route, hops_elsewhere(route, name)) for route in state["routes"]["inet"]]
    return [
        *(f"route replace {' '.join(route_words({**route, 'nexthops': hops}))}" for route, hops in shared if hops),
        f"neighbour flush dev {name} nud permanent",
        *(f"neighbour delete {' '.join(neighbour_words(entry))}" for entry in proxies),
        f"route flush dev {name} table all",
        f"address flush dev {name}",
    ]


def hops_elsewhere(route, name):
    """Next hops of a route over other interfaces."""
    return [hop for hop in route.get("nexthops", []) if hop.get("dev") != name]


def address_lines(name, state, family, passed_s):
    """Lines that add addresses and neighbours, in their order."""
    addresses = [address_words(entry, name, passed_s) for entry in state["addresses"][family]]
    # The kernel lists IPv6's last address first. One that it made meanwhile may be there already.
    verb = "add" if family == "inet" else "replace"
    addresses = addresses if family == "inet" else addresses[::-1]
    return [
        *(f"address {verb} {' '.join(words)} dev {name}" for words in addresses),
        *(f"neighbour replace {' '.join(neighbour_words(entry))}" for entry in state["neighbours"][family]),
    ]


def route_lines(routes):
    """Lines that add routes, those without a gateway first because others may depend on them.

    `append` never replaces a route to the same destination over another interface. A route with several next hops may
    have lost some of them only, so it is replaced.
    """
    ordered = sorted(routes, key=lambda route: "gateway" in route or "via" in route or "nexthops" in route)
    verbs = ["replace" if "nexthops" in route else "append" for route in ordered]
    lines = [f"route {verb} {' '.join(route_words(route))}" for verb, route in zip(verbs, ordered, strict=True)]
    # A route over several interfaces was recorded with each.
    return list(dict.fromkeys(lines))


def run_batch(family, lines):
    """Runs lines of `ip -batch`, which stops at the first error.

    Raises:
        HostError: with the line that failed and ip's reason.
    """
    if not lines:
        return
    try:
        run(["ip", FAMILY_OPTION[family], "-batch", "-"], stdin="\n".join(lines) + "\n")
    except HostError as error:
        # ip prints its reason, then "Command failed -:LINE".
        *reasons, place = error.output or [str(error)]
        number = place.rpartition(":")[2]
        line = lines[int(number) - 1] if number.isdigit() and 0 < int(number) <= len(lines) else "-batch -"
        raise HostError(f"'ip {FAMILY_OPTION[family]} {line}' failed: {reasons[-1] if reasons else place}") from None
