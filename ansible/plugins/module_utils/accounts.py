"""System accounts that several roles share. The last role removes an account, if a role created it."""

from __future__ import annotations

import grp
import os
import pwd

from ansible_collections.backchannel.testbed.plugins.module_utils.host import (
    STATE,
    HostError,
    Originals,
    read,
    run,
    write,
)

#: Home of the agent's account, with the keys that may log in.
HOME = STATE + "/home"


def identity(user, check_mode=False):
    """Returns (uid, gid). In check mode an account that does not exist yet gives its name twice."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        if check_mode:
            return user, user
        raise HostError(f"user '{user}' does not exist here") from None
    return entry.pw_uid, entry.pw_gid


def exists(user):
    """Whether the account exists."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def add_account(changes, user, role):
    """Creates a system account without a shell, unless it exists, and records that the role uses it."""
    originals = Originals("account-" + user)
    if not exists(user) and changes.add("", f"user {user}"):
        try:
            grp.getgrnam(user)
            group = ["--gid", user]
        except KeyError:
            group = ["--user-group"]
        # "*" matches no password. Unlike "!" it does not lock the account against keys.
        run(
            ["useradd", "--system", *group, "--no-create-home", "--home-dir", HOME]
            + ["--shell", "/usr/sbin/nologin", "--password", "*", user]
        )
        originals.record("made", True)
    if not changes.check_mode:
        originals.record("role " + role, True)


def leave_account(changes, user, role):
    """Ends the role's use of the account. The last role removes the account if a role created it."""
    originals = Originals("account-" + user)
    if any(key.startswith("role ") and key != "role " + role for key in originals.values):
        if not changes.check_mode:
            originals.drop("role " + role)
        return
    if originals.values.get("made") and exists(user) and changes.add(f"user {user}", ""):
        run(["userdel", user])
    if not changes.check_mode:
        originals.forget()


def set_folder(changes, path, user, mode):
    """Creates a folder and gives it owner and mode."""
    uid, gid = identity(user, changes.check_mode)
    old = os.stat(path) if os.path.isdir(path) else None
    before = "(absent)" if old is None else f"uid {old.st_uid} gid {old.st_gid} mode {old.st_mode & 0o7777:04o}"
    if changes.add(f"{path}: {before}", f"{path}: uid {uid} gid {gid} mode {mode:04o}"):
        os.makedirs(path, exist_ok=True)
        os.chown(path, uid, gid)
        os.chmod(path, mode)


def set_secret(changes, path, text, user):
    """Writes a file that only its owner can read. The diff does not show its text."""
    uid, gid = identity(user, changes.check_mode)
    old = read(path)
    status = None if old is None else os.stat(path)
    private = status is not None and (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (uid, gid, 0o400)
    if old == text and private:
        return
    before = "(absent)" if old is None else "different text, owner or mode"
    if changes.add(f"{path}: {before}", f"{path}: as configured"):
        write(path, text, 0o400)
        os.chown(path, uid, gid)
