"""Types over SSH, one character at a time, and measures when each comes back."""

import getpass
import json
import os
import statistics
import subprocess
import time

CHARACTERS, EVERY_S = 60, 0.2

subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"], check=True)
session = subprocess.Popen(
    [
        "ssh",
        "-F",
        "none",
        "-i",
        "key",
        "-p",
        os.environ["BACKCHANNEL_PORT"],
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "LogLevel=ERROR",
        f"{getpass.getuser()}@{os.environ['BACKCHANNEL_SERVER']}",
    ],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    bufsize=0,
)
assert session.stdin is not None
assert session.stdout is not None
echoes = []
for number in range(CHARACTERS):
    character = b"abcdefghijklmnopqrstuvwxyz"[number % 26 :][:1]
    began = time.monotonic()
    session.stdin.write(character)
    if session.stdout.read(1) != character:
        raise SystemExit(f"character {number} did not come back: the session ended with {session.wait()}")
    echoes.append(time.monotonic() - began)
    time.sleep(max(EVERY_S - echoes[-1], 0.0))
session.stdin.close()
session.wait()
# The first echo has waited for the login.
typed = sorted(echoes[1:])
print(json.dumps({"echo_p50_s": statistics.median(typed), "echo_p95_s": typed[round(0.95 * (len(typed) - 1))]}))
