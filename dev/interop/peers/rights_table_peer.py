"""The rights that an smb.conf gives with smbd, and with Frevo after `frevo import`: five users, nine actions.

rights_table_peer.py PROGRAM, as root in a mount namespace of its own: it mounts files over /etc and empty folders
over /srv, /home and Samba's. Prints `ok|FAIL NAME SECONDS [REASON]` for each option set of rights_sets.py.
"""

import fnmatch
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import raw
from rights_sets import GLOBAL, SETS, STOCK, STOCK_SHARES, STRICTER

ADDRESS, SMBD_PORT, FREVO_PORT, PASSWORD = "127.0.0.1", 4461, 4462, "Passw0rd"
USERS = {"ann": 50_011, "bob": 50_012, "carl": 50_013, "dora": 50_014, "eve": 50_015}
STAFF, CREW = 50_021, 50_022
GROUPS = {"ann": [STAFF], "bob": [STAFF], "dora": [STAFF], "carl": [CREW]}
ACTIONS = ("list", "read", "write", "create", "mkdir", "delete", "rename", "attributes", "rights")
EVERYONE = bytes([1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])
DELETE, READ_CONTROL, WRITE_DAC, READ_ATTRIBUTES, WRITE_ATTRIBUTES = 0x10000, 0x20000, 0x40000, 0x80, 0x100
OPEN, CREATE, DIRECTORY = 1, 2, 1
CONF = Path("/etc/samba/smb.conf")


def run(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, text=True, capture_output=True, **more).stdout


def mount_all(folder):
    """Hides the machine's accounts, shares and Samba."""
    own = "".join(f"{name}:x:{uid}:{uid}::/home/{name}:/bin/sh\n" for name, uid in USERS.items())
    groups = "".join(f"{name}:x:{uid}:\n" for name, uid in USERS.items())
    files = {
        "/etc/passwd": f"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n{own}",
        "/etc/group": f"root:x:0:\nnogroup:x:65534:\n{groups}staff:x:{STAFF}:ann,bob,dora\ncrew:x:{CREW}:carl\n",
        "/etc/shadow": "root:*:19000:0:99999:7:::\n" + "".join(f"{n}:*:19000:0:99999:7:::\n" for n in USERS),
        str(CONF): "",
    }
    for target, text in files.items():
        source = folder / Path(target).name
        source.write_text(text)
        source.chmod(0o644)
        run("mount", "--bind", source, target)
    for target in ("/srv", "/home", "/var/lib/samba", "/var/cache/samba", "/run/samba", "/var/log/samba"):
        Path(target).mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", target)
    Path("/var/lib/samba/private").mkdir(mode=0o700)


def fill(folder, mode=0o775, default=None):
    """Makes the files of a share: for each user a folder of ann's, with a file for each action."""
    for below in (folder, *(folder / f"for-{user}" for user in USERS)):
        below.mkdir(parents=True, exist_ok=True)
        os.chown(below, USERS["ann"], STAFF)
        below.chmod(mode)
        if default:
            run("setfacl", "-d", "-m", default, below)
        if below == folder:
            continue
        for name, bits in {action: 0o664 for action in ACTIONS if action not in ("list", "create", "mkdir")}.items():
            file = below / name
            file.write_text("content")
            os.chown(file, USERS["ann"], STAFF)
            file.chmod(0o640 if name == "read" else bits)
        secret = below / "secret"
        secret.write_text("of ann")
        os.chown(secret, USERS["ann"], USERS["ann"])
        secret.chmod(0o600)


def rename_information(name):
    path = name.replace("/", "\\").encode("utf-16-le")
    return struct.pack("<BxxxxxxxQI", 0, 0, len(path)) + path


def with_everyone(descriptor):
    """Returns the descriptor's list with the right to read and write for everyone, in a descriptor of its own."""
    offset = struct.unpack_from("<I", descriptor, 16)[0]
    entries = []
    if offset:
        count, at = struct.unpack_from("<H", descriptor, offset + 4)[0], offset + 8
        for _ in range(count):
            size = struct.unpack_from("<H", descriptor, at + 2)[0]
            entries.append(descriptor[at : at + size])
            at += size
    entries = [entry for entry in entries if entry[8:] != EVERYONE]
    entries.append(struct.pack("<BBHI", 0, 0, 8 + len(EVERYONE), 0x12019F) + EVERYONE)
    aces = b"".join(entries)
    acl = struct.pack("<BBHHH", 2, 0, 8 + len(aces), len(entries), 0) + aces
    return struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + acl


class Attempts:
    """The actions of one user on one share, and what the disk shows of them."""

    def __init__(self, tree, below, on_disk):
        self.tree, self.below, self.on_disk = tree, below, on_disk

    def name(self, action):
        return f"{self.below}\\{action}" if self.below else action

    def seen(self, name):
        """Returns the permission bits, the owner and the group of a file on the disk."""
        stat = (self.on_disk / name).stat()
        return oct(stat.st_mode & 0o7777), stat.st_uid, stat.st_gid

    def list(self):
        return self.tree.list(self.below)

    def read(self):
        file = self.tree.open(self.name("read"), access=0x120089, disposition=OPEN)
        assert self.tree.read(file) == b"content"
        self.tree.close(file)

    def write(self):
        file = self.tree.open(self.name("write"), access=0x120116, disposition=OPEN)
        self.tree.write(file, b"other")
        self.tree.close(file)

    def create(self):
        self.tree.close(self.tree.open(self.name("new"), access=0x12019F, disposition=CREATE, attributes=0x20))
        return self.seen("new")

    def mkdir(self):
        self.tree.close(self.tree.open(self.name("folder"), access=0x120089, disposition=CREATE, options=DIRECTORY))
        return self.seen("folder")

    def delete(self):
        file = self.tree.open(self.name("delete"), access=DELETE | READ_ATTRIBUTES, disposition=OPEN)
        self.tree.set(file, 1, 13, b"\1")
        self.tree.close(file)
        assert not (self.on_disk / "delete").exists()

    def rename(self):
        file = self.tree.open(self.name("rename"), access=DELETE | READ_ATTRIBUTES, disposition=OPEN)
        self.tree.set(file, 1, 10, rename_information(self.name("renamed")))
        self.tree.close(file)

    def attributes(self):
        access = READ_ATTRIBUTES | WRITE_ATTRIBUTES
        file = self.tree.open(self.name("attributes"), access=access, disposition=OPEN)
        # READONLY and HIDDEN.
        self.tree.set(file, 1, 4, bytes(32) + struct.pack("<II", 3, 0))
        told = struct.unpack_from("<I", self.tree.query(file, 1, 4), 32)[0]
        self.tree.close(file)
        return hex(told & 7), self.seen("attributes")[0]

    def rights(self):
        file = self.tree.open(self.name("rights"), access=READ_CONTROL | WRITE_DAC, disposition=OPEN)
        self.tree.set(file, 3, 0, with_everyone(self.tree.query(file, 3, 0, additional=4)), 4)
        self.tree.close(file)
        # How lists become bits of owner and group is another question.
        return oct(int(self.seen("rights")[0], 8) & 0o006)

    def all(self):
        """Returns what came of each action: (True, detail) or (False, status)."""
        done = {}
        for action in ACTIONS:
            try:
                done[action] = True, getattr(self, action)()
            except raw.Refused as refused:
                done[action] = False, f"{refused.status:#010x}"
            except (AssertionError, OSError) as error:
                done[action] = False, f"{type(error).__name__} {error}"
        return done


def attempts(port, user, share, below, on_disk):
    try:
        tree = raw.Tree(ADDRESS, port, user, PASSWORD, share)
    except raw.Refused as refused:
        return dict.fromkeys(ACTIONS, (False, f"{refused.status:#010x}"))
    try:
        return Attempts(tree, below, on_disk).all()
    finally:
        tree.client.close()


def bits(seen, user):
    """Returns the three bits that permission bits, owner and group on the disk give a user."""
    mode, owner, group = seen
    groups = {USERS[user], *GROUPS.get(user, ())}
    return int(mode, 8) >> (6 if owner == USERS[user] else 3 if group in groups else 0) & 7


def is_stricter(ours, theirs):
    """True if a new object belongs to the same user as smbd's, and no user has a right that he has not there."""
    return ours[1] == theirs[1] and all(bits(ours, user) & ~bits(theirs, user) == 0 for user in USERS)


def difference(action, ours, theirs):
    """Returns (is it stricter, words) of a difference, or None."""
    if ours == theirs or not ours[0] and not theirs[0]:
        return None
    words = f"{ours[1] if ours[0] else 'refused ' + ours[1]}, smbd {theirs[1] if theirs[0] else 'refused ' + theirs[1]}"
    if ours[0] != theirs[0]:
        return theirs[0], words
    if action in ("create", "mkdir"):
        return is_stricter(ours[1], theirs[1]), words
    if action == "list":
        return set(ours[1]) <= set(theirs[1]), words
    return True, words


class Judge:
    def __init__(self):
        self.used = set()

    def differences(self, name, user, ours, theirs):
        for action in ACTIONS:
            found = difference(action, ours[action], theirs[action])
            if not found:
                continue
            stricter, words = found
            rows = [
                at
                for at, (a_set, a_user, an_action, said, _) in enumerate(STRICTER)
                if fnmatch.fnmatchcase(name, a_set)
                and fnmatch.fnmatchcase(user, a_user)
                and fnmatch.fnmatchcase(action, an_action)
                and fnmatch.fnmatchcase(words, said)
            ]
            self.used.update(rows if stricter else ())
            if not rows or not stricter:
                yield f"{user} {action}: {'' if stricter else 'MORE OPEN: '}{words}"


class Servers:
    """smbd with an smb.conf, and Frevo with what `frevo import` makes of it."""

    def __init__(self, program, folder, text, of_smbd):
        """`text` is the file that is imported, `of_smbd` the one with smbd's folders."""
        self.folder, self.children = folder, []
        CONF.write_text(text)
        of_samba = folder / "smbd.conf"
        own = f"smb ports = {SMBD_PORT}\ninterfaces = {ADDRESS}\nbind interfaces only = yes\ndisable netbios = yes\n"
        own += f"load printers = no\nprinting = bsd\nprintcap name = /dev/null\nlog file = {folder}/log.smbd\n"
        of_samba.write_text(of_smbd.replace("[global]\n", f"[global]\n{own}", 1).replace("printing = cups\n", ""))
        for user in USERS:
            run("smbpasswd", "-c", of_samba, "-L", "-s", "-a", user, input=f"{PASSWORD}\n{PASSWORD}\n")
        state = folder / "state"
        shutil.rmtree(state, ignore_errors=True)
        accounts = run("pdbedit", "-s", of_samba, "-L", "-v", "-w")
        run(program, "user", "--state-dir", state, "import", "-", input=accounts)
        toml = folder / "frevo.toml"
        toml.unlink(missing_ok=True)
        self.report = subprocess.run(
            [program, "import", str(CONF), "-o", str(toml)], check=True, text=True, capture_output=True
        ).stderr
        offered = ["--encryption", "offered", "--signing", "offered", "--min-dialect", "3.0"]
        # Helpers of smbd leave its process group; the PID namespace ends them.
        smbd = ["unshare", "--pid", "--fork", "--kill-child", "smbd"]
        self.start([*smbd, "--foreground", "--no-process-group", "-s", of_samba], SMBD_PORT, "smbd")
        serve = [program, "serve", "--config", toml, "--state-dir", state, "--listen", f"{ADDRESS}:{FREVO_PORT}"]
        self.start([*serve, *offered], FREVO_PORT, "frevo")

    def start(self, command, port, name):
        log = open(self.folder / f"out.{name}", "w")  # noqa: SIM115
        child = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.children.append(child)
        for _ in range(200):
            try:
                socket.create_connection((ADDRESS, port), timeout=1).close()
                return
            except OSError:
                if child.poll() is not None:
                    break
                time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"{name} did not start: {(self.folder / f'out.{name}').read_text()[-600:]}")

    def stop(self):
        for child in self.children:
            # unshare passes no other signal on.
            child.kill()
        for child in self.children:
            child.wait(timeout=20)


def line(name, began, faults):
    took = time.monotonic() - began
    print(f"{'FAIL' if faults else 'ok'} {name} {took:.2f} {'; '.join(faults)}".rstrip(), flush=True)


def conf_of(root):
    shares = (f"[{name}]\npath = {root}/{name}\n{options}\n" for name, (options, _) in SETS.items())
    return f"[global]\n{GLOBAL}{''.join(shares)}"


def try_sets(program, folder, judge):
    """Tries the option sets, all as shares of one file."""
    roots = {FREVO_PORT: Path("/srv/frevo"), SMBD_PORT: Path("/srv/smbd")}
    for root in roots.values():
        for name, (_, how) in SETS.items():
            fill(root / name, **how)
    servers = Servers(program, folder, conf_of(roots[FREVO_PORT]), conf_of(roots[SMBD_PORT]))
    try:
        for name in SETS:
            began, faults = time.monotonic(), []
            for user in USERS:
                below = f"for-{user}"
                told = [attempts(port, user, name, below, root / name / below) for port, root in roots.items()]
                faults += judge.differences(name, user, *told)
                if "-v" in sys.argv:
                    print(f"# {name} {user}: {told[0]}")
            line(name, began, faults)
    finally:
        servers.stop()
    began = time.monotonic()
    idle = [f"no difference fits {row[:4]}" for at, row in enumerate(STRICTER) if at not in judge.used]
    line("table-is-used", began, idle)


def empty_homes():
    """Makes the home folders and /home/groups anew. The folders stay: a server may have them open."""
    for name, uid in {**USERS, "groups": 0}.items():
        folder = Path("/home") / name
        folder.mkdir(exist_ok=True)
        os.chown(folder, uid, uid)
        folder.chmod(0o700)
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for entry in Path("/home").glob("for-*"):
        shutil.rmtree(entry)


def try_stock(program, folder, name, judge):
    """Tries the homes and folders of a distribution's file: first with Frevo, then, anew, with smbd."""
    began, faults = time.monotonic(), []
    text = f"[global]\n{STOCK[name]}"
    empty_homes()
    servers = Servers(program, folder, text, text)
    try:
        for share, place in STOCK_SHARES[name].items():
            for user in USERS:
                told = []
                for port in (FREVO_PORT, SMBD_PORT):
                    empty_homes()
                    on_disk = Path(place.format(user=user))
                    fill(on_disk)
                    if on_disk.name in USERS:
                        os.chown(on_disk, USERS[on_disk.name], USERS[on_disk.name])
                        on_disk.chmod(0o700)
                    below = f"for-{user}"
                    told.append(attempts(port, user, share, below, on_disk / below))
                faults += (f"{share}: {fault}" for fault in judge.differences(f"{name}-{share}", user, *told))
                if "-v" in sys.argv:
                    print(f"# {name} {share} {user}: {told[0]}")
    finally:
        servers.stop()
    line(f"stock-{name}", began, faults)


def main():
    program = sys.argv[1]
    folder = Path("/run/frevo-rights")
    folder.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    mount_all(folder)
    judge = Judge()
    for name in STOCK:
        try:
            try_stock(program, folder, name, judge)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            told = f"{error} {getattr(error, 'stderr', '') or ''}"
            line(f"stock-{name}", time.monotonic(), [told.replace("\n", " ")])
    try_sets(program, folder, judge)


if __name__ == "__main__":
    main()
