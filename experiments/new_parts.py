"""What `./backchannel new` makes: a crate or a package with its test, from the templates of this checkout."""

from __future__ import annotations

import json
import keyword
import shlex
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.language import registry
from testbed import build_cache, own_crates, own_nodes
from testbed.errors import BadRequest, Unavailable, unknown
from testbed.node_binary import ROOT
from testbed.own_crates import LIBRARY, LOCK, MANIFEST, NAME

#: Kinds in Rust and in Python, as the user writes them.
CRATES = ("policy", "controller", "link", "middlebox", "workload")
PACKAGES = ("metric", "figure", "export")
#: How each is used, once the package is installed and its campaign was run.
USES = {
    "metric": "results my-crate --metric my_crate",
    "figure": "plot my-crate RUN -o my-crate.svg      # `runs my-crate` lists the ids of runs",
    "export": "export my-crate RUN -o my-crate.csv    # `runs my-crate` lists the ids of runs",
}
#: Kinds in C, for Linux, with the prefix of their files.
KERNEL = {"kernel-controller": "tcp", "qdisc": "sch"}
KINDS = (*CRATES, *PACKAGES, *KERNEL)
#: Of a name in Linux, without its end.
MOST_LETTERS = 15
#: Names that a crate cannot have in Rust.
RESERVED = frozenset(
    """
    abstract alloc as async await become box break const core crate do dyn else enum extern false final
    fn for gen if impl in let loop macro match mod move mut override priv pub ref return self static std
    struct super test trait true try type typeof unsafe unsized use virtual where while yield
    """.split()  # noqa: SIM905 (a list of 50 words is longer)
)
RUST, PYTHON = ROOT / "agents/templates", ROOT / "analysis/templates"
#: Describes what `new` makes.
GUIDE = ROOT / "docs/your-own.md"


@dataclass(frozen=True)
class Part:
    """A folder with something new."""

    folder: Path
    #: Commands that try it, in order.
    commands: tuple[str, ...]


def make(kind: str, folder: Path) -> Part:
    """Makes a crate or a package in a new folder, whose name it has.

    Raises:
        BadRequest: unknown kind, bad name, or the folder exists or cannot be made.
        Unavailable: this installation has no templates.
    """
    if kind not in KINDS:
        raise BadRequest(unknown("kind", kind, KINDS))
    name = folder.name
    if not NAME.fullmatch(name) or name.startswith("backchannel") or name.endswith("-"):
        raise BadRequest(
            f"'{name}' is not a name for a {kind}: use up to 40 lower-case letters, digits and hyphens, with a letter "
            "first, and none that begins with 'backchannel'"
        )
    if keyword.iskeyword(name) or name in RESERVED | (sys.stdlib_module_names if kind in PACKAGES else frozenset()):
        raise BadRequest(f"'{name}' is a word of the language or of its library; take another name")
    if any(entry.kind == kind and entry.name == name and not entry.crate for entry in registry.entries()):
        raise BadRequest(f"Backchannel has a {kind} '{name}'; take another name")
    if folder.exists():
        raise BadRequest(f"{folder} exists already: 'new' writes only folders of its own")
    if not folder.parent.is_dir():
        raise BadRequest(f"{folder.parent} is not a folder")
    if not RUST.is_dir():
        raise Unavailable(f"{ROOT} has no templates: use a checkout of Backchannel")
    if kind in KERNEL and len(name) > MOST_LETTERS:
        raise BadRequest(f"'{name}' is too long for Linux, whose names have at most {MOST_LETTERS} letters")
    files = _crate(kind) if kind in CRATES else _package(kind, name) if kind in PACKAGES else _kernel(kind, name)
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as scratch:
            new = Path(scratch) / name
            for path, text in files.items():
                target = new / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text if path == LOCK else _renamed(text, name))
            new.rename(folder)
    except OSError as error:
        raise BadRequest(f"{folder} cannot be made: {error.strerror}") from None
    at, program = shlex.quote(str(folder)), shlex.quote(f"{ROOT}/backchannel")
    if kind in CRATES:
        # From its folder, where cargo finds .cargo/config.toml.
        commands = (
            f"(cd {at} && cargo test)",
            f"{program} check {at}",
            f"{program} run {at}/campaign.yaml",
        )
        return Part(folder, commands)
    if kind in KERNEL:
        build = f"{program} kernel build --with {at}/{_object(kind, name)}.c --name {name}"
        return Part(folder, (build, f"{program} run {at}/campaign.yaml"))
    interpreter = shlex.quote(sys.executable)
    install = f"{interpreter} -m pip install -e {at}"
    return Part(folder, (install, f"PYTHONPATH={shlex.quote(str(ROOT))} {interpreter} -m unittest discover {at}"))


def unpack(crate: own_crates.Crate, folder: Path) -> None:
    """Writes the sources of a crate to a new folder. Builds nothing.

    Raises:
        BadRequest: the folder exists, or cannot be made.
    """
    if folder.exists():
        raise BadRequest(f"{folder} exists already")
    try:
        for name, text in {**crate.files, MANIFEST: own_crates.manifest_for(crate, str(ROOT))}.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"{folder} cannot be made: {error.strerror}") from None


def _crate(kind: str) -> Mapping[str, str]:
    target = build_cache.place("nodes") / "target"
    return {
        MANIFEST: (RUST / "manifest.toml").read_text(),
        LIBRARY: (RUST / "src" / f"{kind}.rs").read_text(),
        "campaign.yaml": (RUST / "campaigns" / f"{kind}.yaml").read_text(),
        "README.md": (RUST / "README.md").read_text(),
        # The versions of packages that Backchannel is tested with.
        LOCK: own_nodes.lockfile(),
        # Tests share the objects of Backchannel's crates, which take a minute to compile.
        ".cargo/config.toml": f"[build]\ntarget-dir = {json.dumps(str(target))}\n",
        ".gitignore": "/target\n/results\n",
    }


def _package(kind: str, name: str) -> Mapping[str, str]:
    module = name.replace("-", "_")
    return {
        "pyproject.toml": (PYTHON / "pyproject.template.toml").read_text().replace("KIND", kind),
        f"{module}.py": (PYTHON / f"{kind}.py").read_text(),
        f"test_{module}.py": (PYTHON / f"{kind}_test.py").read_text(),
        "campaign.yaml": (PYTHON / "campaign.yaml").read_text(),
        "README.md": (PYTHON / "README.md").read_text().replace("KIND", kind).replace("USE", USES[kind]),
        ".gitignore": "__pycache__/\n*.egg-info/\n/results/\n",
    }


def _object(kind: str, name: str) -> str:
    return f"{KERNEL[kind]}_{name.replace('-', '_')}"


def _kernel(kind: str, name: str) -> Mapping[str, str]:
    folder = RUST / "kernel"
    return {
        f"{_object(kind, name)}.c": (folder / f"{kind}.c").read_text(),
        "Makefile": (folder / "Makefile.new").read_text().replace("my_object", _object(kind, name)),
        "campaign.yaml": (folder / f"{kind}.yaml").read_text(),
    }


def _renamed(text: str, name: str) -> str:
    words = name.split("-")
    forms = {
        "my-crate": name,
        "my_crate": "_".join(words),
        "MyCrate": "".join(map(str.capitalize, words)),
        "BACKCHANNEL": str(ROOT),
    }
    for old, new in forms.items():
        text = text.replace(old, new)
    return text
