"""The first program inside a virtual kernel that runs a packetdrill script.

    python -S -P scripted.py FOLDER

FOLDER is a folder of the host with request.json: program, arguments, folder of the script, library to preload. Its
output goes to FOLDER/output, and its exit status to FOLDER/status.
"""

import json
import os
import sys
from pathlib import Path

from testbed.virtual_kernel import inside


def main(folder: str) -> None:
    """Runs the script and ends the machine."""
    inside.boot(folder)
    request = json.loads((inside.HOST / "request.json").read_text())
    place = Path(request["folder"])
    # The program writes to /tmp, and what is there of the host is hidden then.
    kept = None
    if place.parts[:2] == ("/", "tmp"):
        kept = Path(*place.parts[:3])
        inside.show_again(kept, Path("/run/kept"))
    inside.mount("tmpfs", "/tmp")
    if kept is not None:
        inside.show_again(Path("/run/kept"), kept)
    output = os.open(inside.HOST / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if (child := os.fork()) == 0:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["LD_PRELOAD"] = request["preload"]
        os.chdir(place)
        os.execv(request["program"], [request["program"], *request["arguments"]])
    _, status = os.waitpid(child, 0)
    (inside.HOST / "status").write_text(str(os.waitstatus_to_exitcode(status)))
    inside.power_off()


main(sys.argv[1])
