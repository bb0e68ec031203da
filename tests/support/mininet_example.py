"""Runs one of Mininet's examples with lines of ours, and Linux bridges in place of Open vSwitch.

backchannel-node cell -- python tests/support/mininet_example.py /usr/share/doc/mininet/examples/linuxrouter.py
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

import mininet.net
from mininet.nodelib import LinuxBridge

from experiments.mininet_link import Line

_start = mininet.net.Mininet.__init__


def _with_lines(net: Any, *args: Any, **words: Any) -> None:
    words.update(switch=LinuxBridge, controller=None)
    words.setdefault("link", Line)
    _start(net, *args, **words)


if __name__ == "__main__":
    mininet.net.Mininet.__init__ = _with_lines
    # Otherwise Mininet raises limits of the machine.
    mininet.net.Mininet.inited = True
    runpy.run_path(sys.argv[1], run_name="__main__")
