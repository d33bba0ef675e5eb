"""Checks of several programs and several mounts on the same files: locks, leases, caches."""

import fcntl
import os
import signal
import subprocess
import sys
import time

from ...model import Failure
from .fixture import PATIENCE, equal, refused, until

LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, int(sys.argv[2]))
        print("free")
    except OSError:
        print("held")
"""


def locks(one, two):
    """POSIX locks: between processes of one mount, and between two mounts."""

    def state(folder, start):
        done = subprocess.run(
            [sys.executable, "-c", LOCK, folder / "locked", str(start)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
        return done.stdout.strip()

    (one / "locked").write_bytes(bytes(100))
    with open(one / "locked", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 20, 10)
        for folder, name in ((one, "same"), (two, "other")):
            equal((state(folder, 0), state(folder, 15), state(folder, 30)), ("free", "held", "free"), f"{name} mount")
        fcntl.lockf(file, fcntl.LOCK_UN, 10, 10)
        equal((state(one, 10), state(two, 10), state(two, 20)), ("free", "free", "held"), "partly unlocked")
        fcntl.lockf(file, fcntl.LOCK_SH, 10, 20)
        equal(state(two, 20), "held", "shared keeps writers out")
        waiter = subprocess.Popen(
            [sys.executable, "-c", LOCK.replace(" | fcntl.LOCK_NB", ""), two / "locked", "20"],
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(0.3)
        equal(waiter.poll(), None, "who waits for a lock")
    equal(waiter.communicate(timeout=PATIENCE)[0].strip(), "free", "who waited")
    os.unlink(one / "locked")


FLOCK = """
import fcntl, sys
with open(sys.argv[1], "rb") as file:
    try:
        fcntl.flock(file, int(sys.argv[2]))
        print("free")
    except OSError:
        print("held")
"""


def flocks(one, two):
    """flock: the whole file, held by one open file description; the second mount sees it too."""

    def start(folder, kind):
        return subprocess.Popen(
            [sys.executable, "-c", FLOCK, folder / "whole", str(kind)], stdout=subprocess.PIPE, text=True
        )

    def state(folder, kind):
        return start(folder, kind | fcntl.LOCK_NB).communicate(timeout=PATIENCE)[0].strip()

    (one / "whole").write_bytes(b"data")
    with open(one / "whole", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        equal((state(one, fcntl.LOCK_SH), state(two, fcntl.LOCK_SH)), ("held", "held"), "exclusive")
        # As scripts do, the holder of the lock writes through another file descriptor.
        with open(one / "whole", "r+b", buffering=0) as writer:
            writer.write(b"more")
        equal(state(two, fcntl.LOCK_EX), "held", "closing another descriptor lets nothing go")
        fcntl.flock(file, fcntl.LOCK_SH)
        equal(
            (state(one, fcntl.LOCK_SH), state(two, fcntl.LOCK_SH), state(two, fcntl.LOCK_EX)),
            ("free", "free", "held"),
            "shared",
        )
        fcntl.flock(file, fcntl.LOCK_EX)
        for folder in (one, two):
            waiter = start(folder, fcntl.LOCK_EX)
            time.sleep(0.3)
            equal(waiter.poll(), None, "who waits")
            waiter.terminate()
            equal(waiter.wait(3), -signal.SIGTERM, "who was told to stop waiting")
        waiter = start(two, fcntl.LOCK_EX)
        time.sleep(0.2)
    equal(waiter.communicate(timeout=PATIENCE)[0].strip(), "free", "who waited until it was closed")
    equal((two / "whole").read_bytes(), b"more", "what was written under it")
    os.unlink(one / "whole")


def expect_read(file, offset, data):
    """Waits until `file` returns `data` at `offset`."""
    until("with both open", lambda: os.pread(file, len(data), offset) == data, 1)


def seen(one, two):
    """Each of two mounts sees changes of the other at once, with files open and closed."""
    for round in range(30):
        (one / "f").write_text(f"one {round}")
        equal((two / "f").read_text(), f"one {round}", "written by one")
        (two / "f").write_text(f"and two {round}")
        equal((one / "f").read_text(), f"and two {round}", "written by two")
    for size in range(1000, 1030):
        equal(os.stat(two / "f").st_size > 0, True, "something is there")
        (one / "f").write_bytes(bytes(size))
        with open(two / "f", "rb") as opened:
            equal(os.fstat(opened.fileno()).st_size, size, "the size after an open")
        equal(os.stat(two / "f").st_size, size, "the size after that")
    with open(one / "f", "r+b", buffering=0) as a, open(two / "f", "r+b", buffering=0) as b:
        # A server does not wait until readers have dropped their caches (MS-SMB2 3.3.4.7). Readers
        # may see old data until the lease break arrives.
        for round in range(30):
            for writer, reader, at in ((a, b, 0), (b, a, 100_000)):
                data = f"{round:08}".encode()
                os.pwrite(writer.fileno(), data, at)
                expect_read(reader.fileno(), at, data)
            equal(os.fstat(a.fileno()).st_size, 100_008, "the size")
    for _ in range(20):
        os.mkdir(one / "d")
        os.rename(two / "d", two / "e")
        if "d" in os.listdir(one) or "e" not in os.listdir(one):
            raise Failure("an outdated listing")
        os.rmdir(one / "e")
        if os.path.exists(two / "e") or os.path.exists(one / "d"):
            raise Failure("a removed directory is still visible")
    os.unlink(two / "f")


def leased(one, two):
    """Directory leases: listings and absent names are cached until the other mount changes the directory."""
    os.mkdir(one / "shared")
    here, there = one / "shared", two / "shared"
    until("the directory", lambda: os.path.exists(there), 3)
    for round in range(15):
        for folder in (here, there):
            list_and_miss(folder, f"new {round}")
        maker, other = (here, there) if round % 2 else (there, here)
        make_and_rename(maker, other, f"new {round}")
    os.rmdir(there)
    until("the directory is gone", lambda: not os.path.exists(here), 3)


def list_and_miss(folder, name):
    """Lists `folder` and asks for an absent name, so that both answers are cached."""
    os.listdir(folder)
    for _ in range(5):
        refused(2, lambda: os.stat(folder / name))


def make_and_rename(maker, other, name):
    """Makes `name` in one mount, renames it in the other, removes it in the first; both must see each step."""
    (maker / name).write_bytes(b"x")
    equal(name in os.listdir(maker), True, "what this mount made")
    # The lease break is not awaited: for one second, while a cached entry is valid, the other mount
    # may still answer from its cache.
    until("a name that was not there", lambda: os.path.exists(other / name), 2)
    until("a listing", lambda: name in os.listdir(other), 2)
    os.rename(other / name, other / "renamed")
    until("a name that is gone", lambda: "renamed" in os.listdir(maker) and not os.path.exists(maker / name), 2)
    os.unlink(maker / "renamed")
    until("nothing is listed", lambda: not os.listdir(other), 2)


def emptied(one, two):
    """One mount fills and empties a directory whose names it knows; it sees what the other mount does to them."""
    os.mkdir(one / "filled")
    here, there = one / "filled", two / "filled"
    for at in range(40):
        (here / f"f{at}").write_bytes(b"x")
    until("all files", lambda: os.path.exists(there) and len(os.listdir(there)) == 40, 3)
    for at in range(10):
        os.unlink(here / f"f{at}")
    os.rename(there / "f20", there / "f21")
    os.unlink(there / "f22")
    for at in range(10, 20):
        os.unlink(here / f"f{at}")
    until("names that are gone", lambda: not os.path.exists(here / "f20") and not os.path.exists(here / "f22"), 2)
    refused(2, lambda: os.unlink(here / "f22"))
    (there / "new").write_bytes(b"another")
    os.rename(there / "new", there / "f23")
    os.unlink(here / "f24")
    until("a file in the place of another", lambda: (here / "f23").read_bytes() == b"another", 2)
    for name in os.listdir(here):
        os.unlink(here / name)
    until("nothing is left", lambda: not os.listdir(there), 2)
    os.rmdir(here)


# Many operations run at once on the same few files. A local file system carries out each operation
# or answers ENOENT.
CROWD = """
import errno, os, random, sys, time
here, seed, until = sys.argv[1], int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
dice, held, done = random.Random(seed), [], 0

def path():
    return f"{here}/c{dice.randrange(4)}"

def opened(flags):
    file = os.open(path(), flags, 0o644)
    if len(held) > 3:
        os.close(held.pop(dice.randrange(len(held))))
    held.append(file)
    return file

def save():
    new = f"{here}/new{seed}"
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(file, bytes([seed]) * dice.randrange(1, 200_000))
    os.close(file)
    os.utime(new, (1, 2))
    os.rename(new, path())

acts = {
    "make": lambda: os.write(opened(os.O_RDWR | os.O_CREAT), b"made"),
    "append": lambda: os.write(opened(os.O_WRONLY | os.O_CREAT | os.O_APPEND), bytes([seed]) * 700),
    "empty": lambda: opened(os.O_RDWR | os.O_CREAT | os.O_TRUNC),
    "read": lambda: os.pread(opened(os.O_RDONLY), 70_000, dice.randrange(100_000)),
    "write": lambda: os.pwrite(opened(os.O_WRONLY), bytes([seed]) * dice.randrange(1, 70_000), dice.randrange(200_000)),
    "again": lambda: held and os.pread(dice.choice(held), 9_000, 0),
    "fstat": lambda: held and os.fstat(dice.choice(held)),
    "fsync": lambda: held and os.fsync(dice.choice(held)),
    "close": lambda: held and os.close(held.pop()),
    "stat": lambda: os.stat(path()),
    "cut": lambda: os.truncate(path(), dice.randrange(150_000)),
    "times": lambda: os.utime(path(), (5, 6)),
    "mode": lambda: os.chmod(path(), 0o640),
    "remove": lambda: os.unlink(path()),
    "move": lambda: os.rename(path(), path()),
    "save": save,
    "list": lambda: [entry.stat(follow_symlinks=False) for entry in os.scandir(here)],
}
while time.monotonic() < until:
    name = dice.choice(list(acts))
    try:
        acts[name]()
    except OSError as e:
        # `again` opens a file for writing only, so its read fails with EBADF. SMB opens files by
        # name: if another process replaces a file twice during an operation (the kernel tries a
        # second time), the operation fails with ESTALE.
        if e.errno not in (errno.ENOENT, errno.ESTALE) and (name, e.errno) != ("again", errno.EBADF):
            sys.exit(f"{name}: {e!r}")
    done += 1
print(done)
"""


def shown(folder):
    """Lists a folder without the names by which FUSE hides removed files until they are closed."""
    return sorted(name for name in os.listdir(folder) if not name.startswith(".fuse_hidden"))


def crowd(ctx, folders, there, seconds):
    """Six programs open, write, truncate, rename, remove and read the same four files, in one or several mounts."""
    here = folders[0]
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", CROWD, folders[seed % len(folders)], str(seed), str(seconds)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(1, 7)
    ]
    ended = [(program.communicate(timeout=PATIENCE + seconds), program.returncode) for program in programs]
    for (_, said), status in ended:
        equal((status, said.strip()[-200:]), (0, ""), "what a local file system would have done")
    ctx.log.write(f"crowd: {sum(int(out) for (out, _), _ in ended)} operations\n")
    until("the mount and the disk have the same names", lambda: shown(here) == shown(there), 5)
    for name in shown(there):
        equal((here / name).read_bytes() == (there / name).read_bytes(), True, f"the bytes of {name}")
        equal(os.stat(here / name).st_size, os.stat(there / name).st_size, f"the length of {name}")
        os.unlink(here / name)
