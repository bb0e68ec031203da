"""HTTP/1.1 on the flow's port: the files of this folder, and /bytes/N/... with N zeros."""

import os
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

CHUNK = bytes(64 << 10)


class Handler(SimpleHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Sends a file, or zeros."""
        parts = self.path.split("/")
        if len(parts) < 3 or parts[1] != "bytes" or not parts[2].isdecimal():
            super().do_GET()
            return
        left = int(parts[2])
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(left))
        self.end_headers()
        while left > 0:
            self.wfile.write(CHUNK[:left])
            left -= len(CHUNK)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


ThreadingHTTPServer((os.environ["BACKCHANNEL_SERVER"], int(os.environ["BACKCHANNEL_PORT"])), Handler).serve_forever()
