"""The README's picture of a browser behind a modem line of 1997.

A page of text and photographs is served on the host at the other end of a session, and headless Chromium loads it. The
picture shows the page at a few moments after the click.

    .venv/bin/python docs/modem_picture.py                      makes docs/images/modem.png, as root
    .venv/bin/python docs/modem_picture.py --behind FOLDER      in the session: loads the page and photographs it
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from jinja2 import Template  # noqa: E402
from PIL import Image, ImageDraw, ImageFont  # noqa: E402

TARGET = ROOT / "docs/images/modem.png"
PROFILE, PORT = "dialup-28.8", 8000
#: When the page is photographed, in s after the click, and its size in pixels.
MOMENTS_S, SIZE = (2, 5, 10, 20), (420, 560)
#: Pictures of the page, with their width in pixels.
PHOTOGRAPHS, WIDTH = ("run.png", "campaign.png", "explorer.png"), 380
PAGE = """<!doctype html><title>The effects of asymmetry</title>
<style>
body { font: 16px serif; margin: 16px; background: #fff }
img { display: block; margin: 8px 0; border: 1px solid #888 }
</style>
<h1>What the return line does</h1>
<p>Acknowledgements share a slow line with data. This page came through one: 28.8 kbit/s, as from a modem of 1997.</p>
{% for image in images %}<img src="{{ loop.index0 }}.jpg" width="{{ image.width }}" height="{{ image.height }}">
{% endfor %}"""


def main() -> None:
    """Serves the page, loads it in a session, and puts the moments side by side."""
    with tempfile.TemporaryDirectory(prefix="modem-") as name:
        folder = Path(name)
        make_page(folder)
        session = subprocess.Popen(
            [
                str(ROOT / "backchannel"),
                "shell",
                "--profile",
                PROFILE,
                "--results",
                str(folder / "results"),
                "--",
                sys.executable,
                __file__,
                "--behind",
                name,
            ],
        )
        server = None
        try:
            while not (folder / "ready").exists():
                if session.poll() is not None:
                    raise SystemExit("the session has ended before the browser started")
                time.sleep(0.1)
            server = subprocess.Popen(
                [
                    str(ROOT / "backchannel"),
                    "shell",
                    "--session",
                    str(session.pid),
                    "enter",
                    "left",
                    "--",
                    "python3",
                    "-m",
                    "http.server",
                    str(PORT),
                    "--directory",
                    name,
                ],
            )
            if session.wait(300) != 0:
                raise SystemExit("the browser failed")
        finally:
            for process in (server, session):
                if process is not None and process.poll() is None:
                    process.terminate()
                    process.wait()
        side_by_side([(f"{moment} s", Image.open(folder / f"{moment}.png")) for moment in MOMENTS_S]).save(
            TARGET, optimize=True
        )


def make_page(folder: Path) -> None:
    """Writes the page and its photographs, JPEG from the top down."""
    images = []
    for number, name in enumerate(PHOTOGRAPHS):
        with Image.open(ROOT / "docs/images" / name) as picture:
            height = round(picture.height * WIDTH / picture.width)
            small = picture.convert("RGB").resize((WIDTH, height)).crop((0, 0, WIDTH, min(height, 240)))
            small.save(folder / f"{number}.jpg", quality=80)
        images.append(small)
    (folder / "index.html").write_text(Template(PAGE, autoescape=True).render(images=images))


def side_by_side(moments: list[tuple[str, Image.Image]]) -> Image.Image:
    """One picture of all moments, each below its time."""
    edge, head = 12, 36
    width, height = SIZE
    strip = Image.new("RGB", (len(moments) * (width + edge) + edge, height + head + edge), "#dddddd")
    drawing, font = ImageDraw.Draw(strip), ImageFont.load_default(24)
    for number, (text, picture) in enumerate(moments):
        left = edge + number * (width + edge)
        drawing.text((left, 4), text, fill="black", font=font)
        strip.paste(picture, (left, head))
    return strip.quantize(64).convert("P")


def behind(folder: Path) -> None:
    """Loads the page, and photographs it at each moment."""
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        (folder / "ready").touch()
        deadline = time.monotonic() + 60
        while True:
            clicked = time.monotonic()
            try:
                page.goto(f"http://left:{PORT}/", wait_until="commit", timeout=60_000)
                break
            except Error:
                # The server is not there yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        for moment in MOMENTS_S:
            page.wait_for_timeout(max(clicked + moment - time.monotonic(), 0) * 1000)
            (folder / f"{moment}.png").write_bytes(page.screenshot(timeout=60_000))
        browser.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--behind"]:
        behind(Path(sys.argv[2]))
    else:
        main()
