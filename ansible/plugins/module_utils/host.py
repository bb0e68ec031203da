"""What the modules share: programs, files, the list of changes, and the original state that teardown restores."""

from __future__ import annotations

import json
import os
import subprocess

from ansible.module_utils.basic import AnsibleModule

STATE = "/var/lib/backchannel"
ORIGINALS = STATE + "/before"
CONFIGURATION = "/etc/backchannel"
#: The agent writes the holder's name here while a campaign uses the host.
HELD = "/run/backchannel/agent.held"
ENOSPC = 28
#: Specification of the option `state` (doc_fragments/host.py).
STATE_ARGUMENT = {"type": "str", "choices": ["present", "absent"], "default": "present"}


class HostError(Exception):
    """Ends a module with its message. `output` has the lines that a failed program printed."""

    output = ()


class Changes:
    """What a module changes, or would change in check mode, as the two sides of a diff."""

    def __init__(self, check_mode):
        self.check_mode = check_mode
        self.before = []
        self.after = []

    def add(self, before, after):
        """Adds one difference. Returns whether to make the change now: false in check mode and without a difference."""
        if before == after:
            return False
        self.before += [before] if isinstance(before, str) else before
        self.after += [after] if isinstance(after, str) else after
        return not self.check_mode

    def result(self):
        """`changed` and `diff` for exit_json."""
        sides = ["\n".join(line for line in lines if line) + "\n" for lines in (self.before, self.after)]
        changed = self.before != self.after
        return {"changed": changed, "diff": {"before": sides[0], "after": sides[1]} if changed else {}}


def run_module(argument_spec, apply):
    """Runs a module that supports check mode: `apply(parameters, changes)` returns further results or None."""
    module = AnsibleModule(argument_spec=argument_spec, supports_check_mode=True)
    changes = Changes(module.check_mode)
    try:
        more = apply(module.params, changes) or {}
    except HostError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        module.fail_json(msg=what + disk_hint(error))
    module.exit_json(**changes.result(), **more)


def disk_hint(error):
    """The remedy for a full disk."""
    return "; free some space on that disk" if error.errno == ENOSPC else ""


def run(words, stdin=None, good=(0,)):
    """Returns a program's standard output.

    Raises:
        HostError: the program is missing, or its status is not in `good`.
    """
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise HostError(f"{words[0]} is not installed here") from None
    if done.returncode not in good:
        output = (done.stderr or done.stdout).strip().splitlines()
        error = HostError(f"'{' '.join(words)}' failed: {output[-1] if output else f'status {done.returncode}'}")
        error.output = output
        raise error
    return done.stdout


def read(path):
    """Returns a file's text, or None if the file does not exist."""
    try:
        with open(path) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return None
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from None


def write(path, text, mode=0o644):
    """Replaces a file atomically. Text None removes it."""
    try:
        if text is None:
            if os.path.lexists(path):
                os.unlink(path)
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        new = path + ".new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}{disk_hint(error)}") from None


def set_file(changes, path, text, mode=0o644):
    """Gives a file its text and mode, or removes it (text None). Returns whether that is a change."""
    old = read(path)
    old_mode = None if old is None else os.stat(path).st_mode & 0o7777
    if old == text and (text is None or old_mode == mode):
        return False
    before = [f"{path}:", *(old.splitlines() if old is not None else ["(absent)"])]
    after = [f"{path}:", *(text.splitlines() if text is not None else ["(absent)"])]
    if old == text:
        before.append(f"mode {old_mode:04o}")
        after.append(f"mode {mode:04o}")
    if changes.add(before, after):
        write(path, text, mode)
    return True


def mounts():
    """Mount points. Device numbers do not reveal them: on an overlay each file may have its own."""
    return [line.split()[1] for line in (read("/proc/mounts") or "").splitlines()]


def remove_tree(changes, path):
    """Removes a file or a folder with its content. A mount point belongs to another role and stays."""
    if not os.path.lexists(path) or path in mounts():
        return
    inside = [point for point in mounts() if point.startswith(path + "/")]
    if inside:
        raise HostError(f"cannot remove {path}: {inside[0]} is mounted in it")
    if changes.add(path, ""):
        run(["rm", "-rf", "--", path])


class Originals:
    """Values that a role found on the host before it changed them, by key, in /var/lib/backchannel/before."""

    def __init__(self, role):
        self._path = f"{ORIGINALS}/{role}.json"
        self.values = json.loads(read(self._path) or "{}")

    def record(self, key, value):
        """Stores an original value unless the key is known: a later value is ours."""
        if key not in self.values:
            self.values[key] = value
            self._save()

    def drop(self, key):
        """Removes one key."""
        if self.values.pop(key, None) is not None:
            self._save()

    def forget(self):
        """Removes the file, and its folders when they are empty. Call it after everything is restored."""
        write(self._path, None)
        remove_empty([ORIGINALS, STATE])

    def _save(self):
        write(self._path, json.dumps(self.values, indent=1, sort_keys=True) + "\n", 0o600)


def taken_interfaces():
    """Interfaces that roles of this collection have taken and not given back."""
    names = set()
    for file in os.listdir(ORIGINALS) if os.path.isdir(ORIGINALS) else []:
        keys = json.loads(read(f"{ORIGINALS}/{file}") or "{}")
        names |= {key[len("interface ") :] for key in keys if key.startswith("interface ")}
    return names


def remove_empty(folders):
    """Removes those of the folders that are empty."""
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError:
            pass


def remove_empty_configuration():
    """Removes empty folders of /etc/backchannel."""
    remove_empty([f"{CONFIGURATION}/services", f"{CONFIGURATION}/agent.d", CONFIGURATION])


def refuse_if_held():
    """Raises HostError, with the holder's name, while a campaign uses this host."""
    holder = read(HELD)
    if holder:
        raise HostError(f"a campaign holds this host ({holder.strip()}); wait until it ends, or stop it")
