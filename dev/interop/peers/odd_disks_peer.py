"""A share on a file system that is a program (FUSE) or on another machine: names in any case, times, long names.

Such a file system tells nothing of changes, or tells them late, and has limits of its own.

    odd_disks_peer.py KIND FOLDER [BEHIND]

FOLDER is the share on the host, BEHIND a folder behind the mount whose files appear in it, or nothing. With GUEST_JOBS
set both are in a guest. With SMB_BELOW set FOLDER is the folder of that name in the share.
"""

import glob
import os
import random
import struct
import subprocess
import sys
import threading
import time

import raw
from report import check

KIND, FOLDER = sys.argv[1], sys.argv[2]
BEHIND = sys.argv[3] if len(sys.argv) > 3 else ""
ADDRESS, PORT, PASSWORD = os.environ["SMB_ADDR"], int(os.environ["SMB_PORT"]), os.environ["SMB_PASS"]
SHARE, USER = os.environ["SMB_SHARE"], os.environ["SMB_USER"]
BELOW = os.environ.get("SMB_BELOW", "")
SECONDS = float(os.environ.get("CROWD_SECONDS", "4"))

OK, INVALID, NOT_FOUND, COLLISION, SHARING, PENDING = 0, 0xC0000033, 0xC0000034, 0xC0000035, 0xC0000043, 0xC0000056
NO_PATH, DENIED, DELETED, IO = 0xC000003A, 0xC0000022, 0xC0000123, 0xC00000E9
OPEN, CREATE, OPEN_IF = 1, 2, 3
ALL, LOOK, REMOVE = 0x13019F, 0x80, 0x10000
FOLDERS, ON_CLOSE = 1, 0x1000

# exFAT and NTFS have names in UTF-16, as Windows has.
OF_WINDOWS = KIND in ("exfat", "ntfs")
# Seconds for which the kernel may use cached facts about files that changed behind the mount.
SETTLED = 1.5


def host(script):
    """Runs a script in the folder on the server's host; returns its output."""
    if "GUEST_JOBS" in os.environ:
        from guest import sh

        return sh(f"cd {FOLDER}\n{script}")
    done = subprocess.run(
        ["bash", "-ec", script], cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False
    )
    said = done.stdout.decode()
    if done.returncode:
        raise RuntimeError(f"{script}: status {done.returncode}: {said[-200:]}")
    return said


def below(name):
    """Returns the path in the share of a name in FOLDER."""
    return "\\".join(part for part in (BELOW, name) if part)


def same(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r}, wanted {wanted!r}")


class Peer(raw.Tree):
    """A client in the share."""

    def __init__(self):
        super().__init__(ADDRESS, PORT, USER, PASSWORD, SHARE)

    def open(self, name, *args, **kwargs):
        return super().open(below(name), *args, **kwargs)

    def create(self, name, disposition=OPEN, access=LOOK, options=0):
        """Returns the status and the file of a CREATE."""
        body = raw.create_body(below(name), access=access, disposition=disposition, options=options)
        answer = self.client.call(raw.CREATE, body)
        return answer.status, answer.body[64:80]

    def tries(self, name, disposition=OPEN, access=LOOK, options=0):
        """Opens and closes; returns the status."""
        status, file = self.create(name, disposition, access, options)
        if status == OK:
            self.close(file)
        return status

    def makes(self, name, options=0):
        same(self.tries(name, CREATE, ALL, options), OK, f"CREATE of {name[:20]!r}")

    def removes(self, name, options=0):
        same(self.tries(name, OPEN, REMOVE, options | ON_CLOSE), OK, f"delete of {name[:20]!r}")

    def renames(self, old, new, replace=False):
        """Returns the status of a rename."""
        status, file = self.create(old, OPEN, REMOVE | LOOK)
        if status != OK:
            return status
        path = below(new).encode("utf-16-le")
        data = struct.pack("<B7xQI", replace, 0, len(path)) + path + bytes(max(0, 4 - len(path)))
        status = self.client.call(raw.SET_INFO, raw.set_body(file, 1, 10, data)).status
        self.close(file)
        return status

    def sets(self, file, accessed=0, written=0):
        data = struct.pack("<QQQQII", 0, accessed, written, 0, 0, 0)
        return self.client.call(raw.SET_INFO, raw.set_body(file, 1, 4, data)).status

    def times(self, file):
        """Returns LastAccessTime and LastWriteTime."""
        return struct.unpack_from("<QQ", self.query(file, 1, 4), 8)


def begin_second():
    """Waits for the first part of a second that is even: the longest tick of the times."""
    while time.time() % 2 > 0.1:
        time.sleep(0.01)


def own_names(t):
    """Names that clients make are found in another case, at once and later, and have no twins."""
    t.makes("own", FOLDERS)
    for at in range(3):
        begin_second()
        t.makes(rf"own\First{at}.txt")
        same(t.tries(rf"own\FIRST{at}.TXT"), OK, "first in another case")
        t.makes(rf"own\Second{at}.txt")
        same(t.tries(rf"own\SECOND{at}.TXT"), OK, "second in another case")
        time.sleep(2.5)
        same(t.tries(rf"own\second{at}.TXT"), OK, "second later")
        same(t.tries(rf"own\SECOND{at}.TXT", CREATE, ALL), COLLISION, "a twin")
        same(t.renames(rf"own\FIRST{at}.TXT", rf"own\SECOND{at}.TXT"), COLLISION, "a twin by rename")
        same(t.renames(rf"own\FIRST{at}.TXT", rf"own\Third{at}.txt"), OK, "rename")
        same(t.tries(rf"own\FIRST{at}.TXT"), NOT_FOUND, "the old name")
        same(t.tries(rf"own\THIRD{at}.TXT"), OK, "the new name in another case")
        t.removes(rf"own\THIRD{at}.TXT")
        same(t.tries(rf"own\third{at}.txt"), NOT_FOUND, "a removed name")
        t.makes(rf"own\THIRD{at}.TXT")
    wanted = sorted(n for at in range(3) for n in (f"Second{at}.txt", f"THIRD{at}.TXT"))
    same(t.list("own"), wanted, "listed")
    same(sorted(host("ls own").split()), wanted, "on the host")
    for name in wanted:
        t.removes("own\\" + name)
    t.removes("own", FOLDERS)


def host_names(t):
    """Names that the host makes and removes, also behind the mount, in the second in which they were looked for."""
    host("mkdir theirs")
    for at in range(3):
        begin_second()
        host(f"touch theirs/A{at}.txt")
        same(t.tries(rf"theirs\a{at}.TXT"), OK, "made by the host")
        same(t.tries(rf"theirs\nosuch{at}"), NOT_FOUND, "no name")
        host(f"touch theirs/B{at}.txt; rm theirs/A{at}.txt")
        same(t.tries(rf"theirs\b{at}.TXT"), OK, "made in the same second")
        same(t.tries(rf"theirs\a{at}.TXT"), NOT_FOUND, "removed in the same second")
        time.sleep(2.5)
        same(t.tries(rf"theirs\a{at}.TXT"), NOT_FOUND, "removed, later")
        t.makes(rf"theirs\a{at}.TXT")
        same(t.tries(rf"theirs\b{at}.TXT", CREATE, ALL), COLLISION, "a twin of the host's")
        if BEHIND:
            host(f"mkdir -p {BEHIND}/theirs; touch {BEHIND}/theirs/Behind{at}.txt")
            time.sleep(SETTLED)
            same(t.tries(rf"theirs\BEHIND{at}.TXT"), OK, "made behind the mount")
            host(f"mv {BEHIND}/theirs/Behind{at}.txt {BEHIND}/theirs/BeHind{at}.TXT")
            time.sleep(SETTLED)
            same(t.tries(rf"theirs\BEHIND{at}.TXT"), OK, "another case behind the mount")
            same(t.tries(rf"theirs\behind{at}.txt", CREATE, ALL), COLLISION, "a twin of one behind the mount")
    host("rm -r theirs")
    t.makes("Theirs", FOLDERS)
    t.removes("Theirs", FOLDERS)


def replaced(t):
    """A rename replaces a file, by a folder too, and moves no folder into itself."""
    for name in ("Old.txt", "New.txt", "Third.txt"):
        t.makes(name)
    same(t.renames("NEW.txt", "OLD.txt"), COLLISION, "without replacing")
    same(t.renames("NEW.txt", "OLD.txt", replace=True), OK, "a file by a file")
    t.makes("Folder", FOLDERS)
    t.makes(r"Folder\in")
    same(t.renames("folder", "THIRD.txt", replace=True), OK, "a file by a folder")
    same(len(t.list("")), 2, "left")
    same(t.list("third.txt"), ["in"], "in the folder")
    same(t.renames("third.txt", r"third.txt\in", replace=True) == OK, False, "a folder into itself")
    same(t.list("third.txt"), ["in"], "in the folder, still")
    t.removes(r"third.txt\in")
    t.removes("third.txt", FOLDERS)
    t.removes("old.txt")
    same(host("ls -A").split(), [], "left on the host")


WRITTEN, ACCESSED = 132_000_000_000_000_000, 131_000_000_000_000_000


def one_time(t):
    """A time that is set alone is the time that is read, in the Open, after it and on the host."""
    for name, is_written in (("bare", False), ("full", True)):
        status, file = t.create(name, CREATE, ALL)
        same(status, OK, "CREATE")
        if is_written:
            t.write(file, b"hello")
        same(t.sets(file, written=WRITTEN), OK, "LastWriteTime alone")
        same(t.times(file)[1], WRITTEN, "in the Open")
        t.close(file)
        for wait in (0, SETTLED):
            time.sleep(wait)
            status, file = t.create(name)
            same(t.times(file)[1], WRITTEN, f"{name} in another Open after {wait} s")
            t.close(file)
        same(host(f"stat -c %Y {name}").strip(), "1555526400", "on the host")
        status, file = t.create(name, access=ALL)
        same(t.sets(file, accessed=ACCESSED), OK, "LastAccessTime alone")
        same(t.times(file), (ACCESSED, WRITTEN), "both")
        t.close(file)
        status, file = t.create(name)
        same(t.times(file)[1], WRITTEN, "LastWriteTime after LastAccessTime")
        t.close(file)
        t.removes(name)


def long_names(t):
    """A name may have 255 units of UTF-16, or as many bytes as the file system takes."""
    longest = 255 if OF_WINDOWS else 85
    file, folder = "名" * longest, "目" * longest
    t.makes(file)
    t.makes(folder, FOLDERS)
    t.makes(rf"{folder}\in.txt")
    same(t.tries(file), OK, "open")
    same(t.tries(rf"{folder}\IN.TXT"), OK, "open below, in another case")
    same(t.list(""), sorted([file, folder]), "listed")
    other = "文" * longest
    same(t.renames(file, other), OK, "rename")
    same(t.tries(file), NOT_FOUND, "the old name")
    host(f"touch '{'木' * longest}'")
    t.removes("木" * longest)
    for name in (other, rf"{folder}\in.txt"):
        t.removes(name)
    t.removes(folder, FOLDERS)
    for name in ("名" * (longest + 1), "x" * 256):
        status = t.tries(name, CREATE, ALL)
        # SFTP has no error code for a name that is too long.
        same(status in (INVALID, NO_PATH) or KIND == "sshfs" and status == IO, True, f"one more: {status:#x}")
    same(t.list(""), [], "left")


# Each name with the name that other file systems show: a private-use character stands for a
# character that SMB forbids there.
PRIVATE = {
    "a\uf022b.txt": "a:b.txt",
    "q\uf025.txt": "q?.txt",
    "sp\uf028": "sp ",
    "dot\uf029": "dot.",
    "x\uf027y": "x|y",
}


def private_names(t):
    """Private characters are stored as they come on file systems of Windows, and stand for reserved ones elsewhere."""
    for name in PRIVATE:
        t.makes(name)
        same(t.tries(name.upper()), OK, f"{name!r} in another case")
        same(t.tries(name, CREATE, ALL), COLLISION, f"{name!r} again")
    same(t.list(""), sorted(PRIVATE), "listed")
    stored = sorted(n if OF_WINDOWS else plain for n, plain in PRIVATE.items())
    same(sorted(host("printf '%s\\n' *").splitlines()), stored, "on the host")
    for name in PRIVATE:
        t.removes(name)
    same(t.list(""), [], "left")


BASES = ["Alpha.txt", "Beta.txt", "Gamma.txt", "Delta.txt"]


def spelled(dice, name):
    if KIND == "exfat":
        # exfat-fuse 1.3 finds names in any case. It aborts or hangs when a file that was found in
        # several spellings is renamed, even without Frevo, so each file is asked for in one
        # spelling.
        return name
    return "".join(dice.choice((c.upper(), c.lower())) for c in name)


def one_of_crowd(number, until, said):
    """One client: makes, opens, renames, removes and lists the same few names, each time in some case."""
    try:
        t, dice, done = Peer(), random.Random(number), 0
        while time.monotonic() < until:
            name, other = (spelled(dice, dice.choice(BASES)) for _ in range(2))
            act = dice.randrange(7)
            if act == 0:
                status = t.tries("crowd\\" + name, CREATE, ALL)
            elif act == 1:
                status = t.tries("crowd\\" + name, OPEN_IF, ALL)
            elif act == 2:
                status = t.tries("crowd\\" + name)
            elif act == 3:
                status = t.tries("crowd\\" + name, OPEN, REMOVE, ON_CLOSE)
            elif act < 6:
                status = t.renames("crowd\\" + name, "crowd\\" + other, replace=act == 5)
            else:
                status, _ = OK, t.list("crowd")
            # A file that another client has open cannot be replaced, and a file that another client
            # deletes cannot be renamed.
            of_rename = (DENIED, DELETED) if 4 <= act < 6 else ()
            if status not in (OK, NOT_FOUND, COLLISION, SHARING, PENDING, *of_rename):
                raise AssertionError(f"act {act} on {name}: status {status:#x}")
            done += 1
        said.append(done)
    except Exception as e:
        said.append(f"{type(e).__name__}: {e}")


def is_open(name):
    """Tells if any process of this machine has a file of that name open."""
    for fd in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            if name in os.readlink(fd):
                return True
        except OSError:
            pass
    return False


def forget_hidden(t):
    """Removes what libfuse has left of files that were open when they were removed or replaced.

    It keeps such a file under a name of its own until the kernel has told it of the last close, which may come after
    close() has returned, and sometimes leaves one for ever. It must not be open any more.
    """
    for _ in range(50):
        hidden = [name for name in t.list("crowd") if name.startswith(".fuse_hidden")]
        if not hidden:
            return
        time.sleep(0.1)
    same([name for name in hidden if is_open(name)], [], "removed files that are still open")
    host("rm -f crowd/.fuse_hidden*")


def three_clients(t):
    """Three clients at once on the same names: afterwards no name has a twin, each is found, and others are free."""
    t.makes("crowd", FOLDERS)
    said, until = [], time.monotonic() + SECONDS
    crowd = [threading.Thread(target=one_of_crowd, args=(number, until, said)) for number in range(3)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join(SECONDS + 30)
    same([one for one in said if isinstance(one, str)], [], "clients")
    same(len(said), 3, "clients that came to their end")
    print(f"three clients: {sum(said)} operations", file=sys.stderr)
    names = t.list("crowd")
    same(sorted(host("ls -A crowd").split()), names, "the host and the share have the same names")
    same(len({name.lower() for name in names}), len(names), f"no twins in {names}")
    there = {name.lower() for name in names}
    for base in BASES:
        for name in (base.swapcase(), base.upper(), base.lower(), base):
            same(t.tries("crowd\\" + name), OK if base.lower() in there else NOT_FOUND, name)
        if base.lower() not in there:
            t.makes("crowd\\" + base)
        t.removes("crowd\\" + base.swapcase())
    forget_hidden(t)
    same(t.list("crowd"), [], "left")
    same(host("ls -A crowd").split(), [], "left on the host")
    t.removes("crowd", FOLDERS)


CHECKS = {
    "own-names": own_names,
    "host-names": host_names,
    "replaced": replaced,
    "one-time": one_time,
    "long-names": long_names,
    "private-names": private_names,
    "three-clients": three_clients,
}

for said, act in CHECKS.items():
    with check(said):
        peer = Peer()
        try:
            act(peer)
        finally:
            peer.client.close()
            host("rm -rf -- * 2>/dev/null || true")
