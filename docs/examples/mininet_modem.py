#!/usr/bin/env python3
"""A Mininet script of one's own with an emulated modem line in it, whose run appears on the site.

Run it as root inside a cell, so that nothing stays behind and nothing meets the machine's own network:

    sudo target/release/backchannel-node cell -- .venv/bin/python docs/examples/mininet_modem.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mininet.log import setLogLevel
from mininet.net import Mininet

from experiments.mininet_link import Line
from experiments.mininet_run import record


def main() -> None:
    """Pings across a 28.8 kbit/s dialup line."""
    setLogLevel("warning")
    net = Mininet(controller=None, build=False)
    a, b = net.addHost("a", ip="10.0.0.1/24"), net.addHost("b", ip="10.0.0.2/24")
    net.addLink(a, b, cls=Line, profile="dialup-28.8")
    net.build()
    with record(net, name="modem"):
        print(a.cmd("ping -c 3 -i 0.3 -s 28 10.0.0.2").strip())
    net.stop()


if __name__ == "__main__":
    main()
