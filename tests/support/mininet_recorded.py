"""A script of Mininet users with a bridge between lines of unequal rate, whose run is recorded."""

import sys

from mininet.net import Mininet
from mininet.nodelib import LinuxBridge

from experiments.mininet_link import Line
from experiments.mininet_run import record

if __name__ == "__main__":
    # Otherwise Mininet raises limits of the machine.
    Mininet.inited = True
    net = Mininet(switch=LinuxBridge, controller=None, build=False)
    h1, h2, s1 = net.addHost("h1", ip="10.0.0.1/24"), net.addHost("h2", ip="10.0.0.2/24"), net.addSwitch("s1")
    cls = Line if "plain" not in sys.argv else None
    words = {"cls": Line, "max_queue_size": 50} if cls else {}
    net.addLink(h1, s1, **words, **({"bw": 10, "delay": "5ms"} if cls else {}))
    net.addLink(s1, h2, **words, **({"bw": 2, "delay": "10ms", "jitter": "2ms"} if cls else {}))
    net.start()
    h1.cmd("python3 -m http.server 8000 &")
    h2.cmd("curl --silent --retry 20 --retry-connrefused --retry-delay 1 --output /dev/null http://10.0.0.1:8000/")
    with record(net, name="two hosts", results="kept") as recording:
        h2.cmd("ping -c 40 -i 0.05 10.0.0.1")
        h2.cmd("curl --silent --max-time 30 --output /dev/null http://10.0.0.1:8000/page")
    assert recording.run is not None
    print(len(recording.problems), recording.run.run_id)
    h1.cmd("kill %python3")
    net.stop()
