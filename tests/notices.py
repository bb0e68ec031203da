"""Licences of the crates in the node binary, for releases that are sent to hosts.

    python -m tests.notices >THIRD-PARTY-NOTICES     # after a change of Cargo.lock

It needs the crates' sources in cargo's registry, which a build leaves there.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

from testbed.node_binary import ROOT

REGISTRY = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry/src"
BINARY = "backchannel-node"


def crates() -> dict[str, str]:
    """Versions of the published crates that the binary may contain, by name."""
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    by_name = {package["name"]: package for package in packages}
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    # Members alone: benchmarks keep copies of the tree in .cache.
    manifests = [path for member in members for path in ROOT.glob(f"{member}/Cargo.toml")]
    folders = {tomllib.loads(path.read_text())["package"]["name"]: path for path in manifests}
    result: dict[str, str] = {}
    waiting, seen = [BINARY], {BINARY}
    while waiting:
        package = by_name[waiting.pop()]
        needed = [text.split()[0] for text in package.get("dependencies", ())]
        if "source" in package:
            result[package["name"]] = package["version"]
        else:
            # Cargo.lock has a member's dependencies together with those of its tests.
            declared = tomllib.loads(folders[package["name"]].read_text()).get("dependencies", {})
            needed = [entry for entry in needed if entry in declared]
        waiting += [entry for entry in needed if entry not in seen]
        seen |= set(needed)
    return dict(sorted(result.items()))


def text() -> str:
    """The notices: a list of crates by licence text, and each text once."""
    users: dict[str, list[str]] = {}
    for name, version in crates().items():
        folder = next(REGISTRY.glob(f"*/{name}-{version}"), None)
        if folder is None:
            raise SystemExit(f"{name} {version} is not in {REGISTRY}: build the node binary first")
        licence = tomllib.loads((folder / "Cargo.toml").read_text())["package"].get("license", "see its file")
        kept = [
            path for path in sorted(folder.iterdir()) if path.name.upper().startswith(("LICEN", "COPYING", "NOTICE"))
        ]
        # A crate under a choice of licences is used under MIT where it offers MIT.
        chosen = [path for path in kept if "MIT" in path.name.upper()] or kept
        for path in [path for path in chosen if path.is_file()]:
            users.setdefault(path.read_text(errors="replace").strip(), []).append(f"{name} {version} ({licence})")
        if not chosen:
            users.setdefault(f"No licence file is published with it; it is licensed under {licence}.", []).append(
                f"{name} {version} ({licence})"
            )
    scripts = "The script libraries uPlot and CodeMirror have their licences beside them."
    parts = [f"The program backchannel-node contains these crates. {scripts}"]
    parts += ["\n".join([*names, "", licence]) for licence, names in users.items()]
    return ("\n\n" + "-" * 80 + "\n\n").join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
