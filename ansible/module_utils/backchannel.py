"""What Backchannel's modules share: running programs, writing files, and remembering what was there before.

Whatever a role changes on a host, its old value is kept under MEMORY first, so that teardown can put it back.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess

STATE = "/var/lib/backchannel"
MEMORY = STATE + "/before"
CONFIGURATION = "/etc/backchannel"
#: Of the agent's account: holds the keys that may reach it.
HOME = STATE + "/home"
#: Written by the agent while a campaign holds this host.
HELD = "/run/backchannel/agent.held"
#: Asks nothing.
APT_INSTALL = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-q", "--no-install-recommends")


class Trouble(Exception):
    """Ends a module with one sentence."""


class Report:
    """What would change, as two lists of lines, and whether anything did."""

    def __init__(self, check):
        self.check = check
        self.before = []
        self.after = []

    @property
    def changed(self):
        """Whether the two lists differ."""
        return self.before != self.after

    def note(self, before, after):
        """One thing, as it was and as it is to be; returns whether it must be done now."""
        if before == after:
            return False
        self.before += [before] if isinstance(before, str) else before
        self.after += [after] if isinstance(after, str) else after
        return not self.check

    def as_result(self, **more):
        """For exit_json."""
        text = ["\n".join(line for line in lines if line) + "\n" for lines in (self.before, self.after)]
        return dict(changed=self.changed, diff={"before": text[0], "after": text[1]} if self.changed else {}, **more)


def run(words, stdin=None, good=(0,)):
    """A program's standard output.

    Raises:
        Trouble: it is missing, or ended with a status that is not good.
    """
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Trouble("%s is not installed here" % words[0]) from None
    if done.returncode not in good:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Trouble("'%s' failed: %s" % (" ".join(words), said[-1] if said else "status %d" % done.returncode))
    return done.stdout


def read(path):
    """A file's text; None where there is none."""
    try:
        with open(path) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return None
    except OSError as error:
        raise Trouble("%s cannot be read: %s" % (path, error.strerror)) from None


def write(path, text, mode=0o644):
    """Replaces a file in one step; with text None, removes it."""
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
        hint = "; make room on that disk" if error.errno == 28 else ""
        raise Trouble("%s cannot be written: %s%s" % (path, error.strerror, hint)) from None


def keep_file(report, path, text, mode=0o644):
    """Brings a file to a text (None: away). Returns whether it changed, or would."""
    old = read(path)
    same_mode = old is None or text is None or (os.stat(path).st_mode & 0o7777) == mode
    if old == text and same_mode:
        return False
    before = ["%s:" % path, *(old.splitlines() if old is not None else ["(absent)"])]
    after = ["%s:" % path, *(text.splitlines() if text is not None else ["(absent)"])]
    if old == text:
        before.append("mode %04o" % (os.stat(path).st_mode & 0o7777))
        after.append("mode %04o" % mode)
    if report.note(before, after):
        write(path, text, mode)
    return True


def keep_secret(report, path, text, owner):
    """Brings a file that only its owner can read to a text, which no report shows."""
    uid, gid = identity(owner, report.check)
    old = read(path)
    status = None if old is None else os.stat(path)
    as_it_is = status is not None and (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (uid, gid, 0o400)
    if old == text and as_it_is:
        return
    is_now = "(absent)" if old is None else "another secret, or for other eyes"
    if report.note("%s: %s" % (path, is_now), "%s: the secret wanted" % path):
        write(path, text, 0o400)
        os.chown(path, uid, gid)


def keep_folder(report, path, owner, mode):
    """Brings a folder to an owner and a mode."""
    uid, gid = identity(owner, report.check)
    old = os.stat(path) if os.path.isdir(path) else None
    is_now = "(absent)" if old is None else "uid %d gid %d mode %04o" % (old.st_uid, old.st_gid, old.st_mode & 0o7777)
    wanted = "uid %s gid %s mode %04o" % (uid, gid, mode)
    if report.note("%s: %s" % (path, is_now), "%s: %s" % (path, wanted)) if is_now != wanted else False:
        os.makedirs(path, exist_ok=True)
        os.chown(path, uid, gid)
        os.chmod(path, mode)


def mounts():
    """Folders on which something is mounted. Devices tell nothing: on an overlay every file has one of its own."""
    return [line.split()[1] for line in (read("/proc/mounts") or "").splitlines()]


def away(report, path):
    """Removes a file or a folder with all that is in it; one that is mounted is another role's."""
    if not os.path.lexists(path) or path in mounts():
        return
    inside = [one for one in mounts() if one.startswith(path + "/")]
    if inside:
        raise Trouble("%s cannot be removed: %s is mounted in it" % (path, inside[0]))
    if report.note(path, ""):
        run(["rm", "-rf", "--", path])


def identity(owner, check=False):
    """(uid, gid) of a user; in check mode a user may still be to come."""
    try:
        entry = pwd.getpwnam(owner)
    except KeyError:
        if check:
            return owner, owner
        raise Trouble("there is no user '%s' here" % owner) from None
    return entry.pw_uid, entry.pw_gid


def group_exists(name):
    """Whether there is such a group."""
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def account(report, user, role):
    """A system account for a role, whose shell serves nothing but forwarding."""
    if not account_exists(user) and report.note("", "user %s" % user):
        more = ["--gid", user] if group_exists(user) else ["--user-group"]
        # A password of "*" is none that could be typed, but does not lock the account against keys as "!" does.
        run(
            [
                "useradd",
                "--system",
                *more,
                "--no-create-home",
                "--home-dir",
                HOME,
                "--shell",
                "/usr/sbin/nologin",
                "--password",
                "*",
                user,
            ]
        )
        Memory("account-" + user).keep("made", True)
    if not report.check:
        Memory("account-" + user).keep("role " + role, True)


def leave_account(report, user, role):
    """A role needs the account no more; the last one that leaves takes it away, if we made it."""
    memory = Memory("account-" + user)
    others = [key for key in memory.values if key.startswith("role ") and key != "role " + role]
    if others:
        if not report.check:
            memory.drop("role " + role)
        return
    if memory.values.get("made") and account_exists(user) and report.note("user %s" % user, ""):
        run(["userdel", user])
    if not report.check:
        memory.forget()


def account_exists(user):
    """Whether there is such a user."""
    try:
        identity(user)
    except Trouble:
        return False
    return True


class Memory:
    """Old values of one role, by key."""

    def __init__(self, role):
        self._path = "%s/%s.json" % (MEMORY, role)
        self.values = json.loads(read(self._path) or "{}")

    def keep(self, key, value):
        """Notes an old value, unless one is known already: ours is not the original."""
        if key not in self.values:
            self.values[key] = value
            write(self._path, json.dumps(self.values, indent=1, sort_keys=True) + "\n", 0o600)

    def drop(self, key):
        """Forgets one."""
        if self.values.pop(key, None) is not None:
            write(self._path, json.dumps(self.values, indent=1, sort_keys=True) + "\n", 0o600)

    def forget(self):
        """After everything was put back."""
        write(self._path, None)
        for folder in (MEMORY, STATE):
            try:
                os.rmdir(folder)
            except OSError:
                pass


def tidy():
    """Removes our folders of configuration that are empty."""
    for folder in ("services", "agent.d", ""):
        try:
            os.rmdir(os.path.join(CONFIGURATION, folder))
        except OSError:
            pass


def missing_packages(names):
    """Which of them are not installed."""
    if not names:
        return []
    said = run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *names], good=(0, 1))
    there = {line.split()[0] for line in said.splitlines() if line.split()[1:2] == ["ii"]}
    return [name for name in names if name not in there]


def require_packages(names):
    """Holds what is missing against apt's lists, read anew if that is what it takes.

    Raises:
        Trouble: some can be had nowhere.
    """
    names = missing_packages(names)
    if not names:
        return
    dry = [*APT_INSTALL, "--simulate", *names]
    try:
        try:
            run(dry)
        except Trouble:
            run(["apt-get", "update", "-q"])
            run(dry)
    except Trouble as trouble:
        raise Trouble("packages are missing (%s) and cannot be installed: %s" % (", ".join(names), trouble)) from None


def keep_packages(report, names):
    """Brings what is missing of them from the distribution."""
    lacking = missing_packages(names)
    if lacking and report.note(
        ["package %s: absent" % name for name in lacking], ["package %s: installed" % name for name in lacking]
    ):
        require_packages(lacking)
        run([*APT_INSTALL, *lacking])


def refuse_if_held():
    """A campaign that runs here must not lose its testbed under its feet.

    Raises:
        Trouble: it says who holds the host.
    """
    holder = read(HELD)
    if holder:
        raise Trouble("a campaign holds this host (%s); wait for its end, or end it" % holder.strip())


def answer(converge, wanted, check):
    """What a module answers; every trouble becomes one message that names the host's remedy."""
    try:
        return converge(wanted, Report(check))
    except Trouble as trouble:
        return {"failed": True, "msg": str(trouble)}
    except OSError as error:
        what = "%s: %s" % (error.filename, error.strerror) if error.filename else str(error)
        return {"failed": True, "msg": "%s%s" % (what, "; make room on that disk" if error.errno == 28 else "")}


def sysctl_path(name):
    """The file behind a sysctl."""
    return "/proc/sys/" + name.replace(".", "/")


def keep_sysctls(report, memory, wanted):
    """Brings live kernel settings to their values, remembering the old ones."""
    for name, value in sorted(wanted.items()):
        old = read(sysctl_path(name))
        if old is None:
            raise Trouble("this kernel has no setting %s" % name)
        if old.split() == str(value).split():
            continue
        if report.note("%s = %s" % (name, " ".join(old.split())), "%s = %s" % (name, value)):
            memory.keep("sysctl " + name, old.strip())
            set_sysctl(name, value)


def set_sysctl(name, value):
    """Writes a live setting and reads it back."""
    path = sysctl_path(name)
    try:
        with open(path, "w") as file:
            file.write(str(value))
    except OSError as error:
        raise Trouble("setting %s to '%s' was refused: %s" % (name, value, error.strerror)) from None
    if (read(path) or "").split() != str(value).split():
        raise Trouble("setting %s was set to '%s' but does not keep it" % (name, value))


def restore_sysctls(report, memory):
    """Puts the remembered settings back."""
    for key, value in sorted(memory.values.items()):
        if not key.startswith("sysctl "):
            continue
        name = key[len("sysctl ") :]
        old = read(sysctl_path(name))
        if old is not None and old.split() != value.split():
            if report.note("%s = %s" % (name, " ".join(old.split())), "%s = %s" % (name, value)):
                set_sysctl(name, value)
