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
    # The program writes to /tmp. Of the host, only the folders of the script and of its python3 are there.
    paths = (place, Path(sys.executable))
    kept = {Path(*path.parts[:3]) for path in paths if path.parts[:2] == ("/", "tmp")}
    for folder_of_tmp in kept:
        inside.show_again(folder_of_tmp, Path("/run/kept", folder_of_tmp.name))
    inside.mount("tmpfs", "/tmp")
    for folder_of_tmp in kept:
        inside.show_again(Path("/run/kept", folder_of_tmp.name), folder_of_tmp)
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
