"""The folder of the package `backchannel` as an installation has it, made from a checkout."""

from __future__ import annotations

import shutil
from pathlib import Path

from distribution import rewrite
from testbed import sources

#: Beside the program's files: pages of the site, and what says who may do what with this.
PAGES = ("docs/campaigns.md", "docs/studies/*.md")
#: Where Ansible looks for the collection.
COLLECTION = "ansible_collections/backchannel/testbed"
#: Files beside the collection that belong to this checkout.
NOT_OF_THE_COLLECTION = (".ansible-lint", ".ansible", "hosts.yml", "collected")
#: What roles name by its place in a release or by the name of a module, and as which an installation has it.
IN_ROLES = {
    "roles/agent/vars/main.yml": [("  - agents.service", "  - backchannel.agents.service")],
    "roles/worker/tasks/main.yml": [
        ("'-m', 'experiments'", "'-m', 'backchannel.experiments'"),
        ("current/requirements.txt", "current/backchannel/requirements.txt"),
    ],
    "roles/results_site/tasks/main.yml": [("current/requirements.txt", "current/backchannel/requirements.txt")],
    "roles/results_site/vars/main.yml": [("  - experiments\n", "  - backchannel.experiments\n")],
}
#: Kinds of files in which messages name the command.
TEXTS = frozenset({".html", ".js", ".md", ".j2"})


def fill(root: Path, tree: Path) -> None:
    """Makes the package's folder, without the binary.

    Args:
        root: the checkout.
        tree: a folder that does not exist.
    """
    files = sources.matching(root, (*sources.PROGRAM, *PAGES))
    for path in sorted((root / "distribution" / "package").glob("*")):
        if path.is_file():
            files[path.name] = path
    roles: dict[str, list[tuple[str, str]]] = {}
    for name, path in sources.matching(root / "ansible", ("**/*",)).items():
        if not set(Path(name).parts) & set(NOT_OF_THE_COLLECTION):
            files[f"{COLLECTION}/{name}"] = path
            roles[f"{COLLECTION}/{name}"] = IN_ROLES.get(name, [])
    for name, path in files.items():
        to = tree / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, to)
        if path.suffix == ".py":
            to.write_text(rewrite.installed(path.read_text(), str(path)))
        elif path.suffix in TEXTS:
            to.write_text(path.read_text().replace(rewrite.COMMAND, rewrite.INSTALLED_COMMAND))
        for old, new in roles.get(name, []):
            text = to.read_text()
            if text.count(old) != 1:
                raise ValueError(f"{path} has '{old.strip()}' {text.count(old)} times; hook.py expects it once")
            to.write_text(text.replace(old, new))
    (tree / sources.RELEASED).write_text(sources.digest() + "\n")
