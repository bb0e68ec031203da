"""The sources as modules of one package, `backchannel`, for an installation beside other packages.

In a checkout the folders `agents`, `analysis`, `experiments`, `testbed` and `web` are packages at the top. There are
other packages of these names: an installation must neither hide them nor import them. Only import statements change;
what the code says in strings goes through testbed.node_binary.PACKAGE.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

#: The package of an installation, and what becomes a part of it.
PACKAGE = "backchannel"
FOLDERS = frozenset({"agents", "analysis", "experiments", "testbed", "web"})
#: The modules at the package's top.
TOP = "distribution.package"
#: The command in a checkout, as messages name it, and in an installation.
COMMAND, INSTALLED_COMMAND = "./backchannel", "backchannel"

#: Byte in a line (from 0), length of what is replaced, replacement.
Edit = tuple[int, int, str]


def installed(source: str, name: str) -> str:
    """A module's source with the names that its imports have in an installation.

    Args:
        source: of the module.
        name: of the file, for the error.

    Raises:
        ValueError: an import has a form that is not known.
    """
    lines = source.encode().splitlines(keepends=True)
    edits: dict[int, list[Edit]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for line, edit in _edits(node, name):
                edits.setdefault(line, []).append(edit)
    for line, changes in edits.items():
        text = lines[line - 1]
        for start, length, new in sorted(changes, reverse=True):
            text = text[:start] + new.encode() + text[start + length :]
        lines[line - 1] = text
    return b"".join(lines).decode().replace(COMMAND, INSTALLED_COMMAND)


def _edits(node: ast.Import | ast.ImportFrom, name: str) -> Iterator[tuple[int, Edit]]:
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level == 0 and f"{module}.".startswith(f"{TOP}."):
            yield node.lineno, (node.col_offset, len(f"from {TOP}"), f"from {PACKAGE}")
        elif node.level == 0 and _is_ours(module):
            yield node.lineno, (node.col_offset, len("from "), f"from {PACKAGE}.")
        return
    for alias in node.names:
        if not _is_ours(alias.name):
            continue
        if alias.asname is not None:
            yield alias.lineno, (alias.col_offset, 0, f"{PACKAGE}.")
        elif "." not in alias.name and len(node.names) == 1:
            yield node.lineno, (node.col_offset, len("import "), f"from {PACKAGE} import ")
        else:
            raise ValueError(f"{name}:{node.lineno}: write 'from {alias.name} import ...': this form is not rewritten")


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in FOLDERS
