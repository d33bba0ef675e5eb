"""`frevo mount`: a FUSE mount, driven by programs as any folder is, and compared with the server's disk."""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

from .. import trees
from ..model import OUT, Failure, group
from .cifs import repository

FSX = OUT / "tools/bin/fsx"
PATIENCE = 30
GIT = ["git", "-c", "safe.directory=*"]


def until(what, test, seconds=PATIENCE):
    """Waits until `test` holds."""
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def equal(found, wanted, what):
    if found != wanted:
        raise Failure(f"{what}: {str(found)[:120]!r}, wanted {str(wanted)[:120]!r}")


def refused(error, act):
    """`act` must fail with this errno."""
    try:
        act()
    except OSError as found:
        return equal(found.errno, error, "errno")
    raise Failure(f"it worked, wanted errno {error}")


def no_fuse():
    """Why nothing can be mounted over FUSE on this machine, or nothing."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as e:
        return f"no FUSE here: {e}"


class Mount:
    """A mounted share and the program that mounts it."""

    def __init__(self, ctx, name="mounted", *options, url=None, password=None):
        server = ctx.server
        self.folder = ctx.work / name
        self.folder.mkdir(exist_ok=True)
        self.said = ctx.work / f"{name}.said"
        url = url or f"smb://{server.user}@{server.address}:{server.port}/{server.share}"
        env = {**os.environ, "FREVO_PASSWORD": password or server.password}
        command = [os.environ["FREVO_CLIENT"], "mount", "--foreground", *options, url, self.folder]
        ctx.log.write("$ " + " ".join(map(str, command)) + "\n")
        with open(self.said, "w") as said:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env)
        until("mounted", lambda: os.path.ismount(self.folder) or self.process.poll() is not None)
        if not os.path.ismount(self.folder):
            raise Failure(f"not mounted: {self.said.read_text()[-250:]}")

    def end(self, number=signal.SIGTERM):
        """Ends it as a user does; it must be clean."""
        self.process.send_signal(number)
        try:
            status = self.process.wait(PATIENCE)
        finally:
            self.abandon()
        if status or "is unmounted" not in self.said.read_text():
            raise Failure(f"status {status}: {self.said.read_text()[-250:]}")

    def abandon(self):
        """Whatever happened, nothing is left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if os.path.ismount(self.folder):
            subprocess.run(["umount", "-l", self.folder], check=False)


@contextlib.contextmanager
def mounted(ctx, *args, **more):
    mount = Mount(ctx, *args, **more)
    try:
        yield mount.folder
        mount.end()
    finally:
        mount.abandon()


def tree(ctx, here, there):
    """A tree of odd names onto the mount, looked at on the server's disk, and back."""
    source = ctx.work / "tree"
    if not source.exists():
        for at in range(60):
            folder = source / f"d{at % 5}" / "é ü"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"file {at}").write_bytes(os.urandom(at * 1700))
    shutil.copytree(source, here / "tree")
    trees.same_tree(source, there / "tree")
    trees.same_tree(here / "tree", source)
    shutil.copytree(here / "tree", ctx.work / "back")
    trees.same_tree(source, ctx.work / "back")
    shutil.rmtree(ctx.work / "back")
    shutil.rmtree(here / "tree")
    if (there / "tree").exists():
        raise Failure("it was not removed")


def names(here, there):
    """What is done to names, and names that SMB keeps for itself."""
    os.mkdir(here / "dir")
    refused(17, lambda: os.mkdir(here / "dir"))
    (here / "dir/a").write_bytes(b"a")
    refused(39, lambda: os.rmdir(here / "dir"))
    refused(2, lambda: os.rmdir(here / "none"))
    (here / "b").write_bytes(b"b")
    os.rename(here / "b", here / "dir/a")
    equal((there / "dir/a").read_bytes(), b"b", "renamed over")
    os.rename(here / "dir", here / "moved")
    equal((here / "moved/a").read_bytes(), b"b", "below a renamed directory")
    os.mkdir(here / "empty")
    os.rename(here / "moved", here / "empty")
    equal((here / "empty/a").read_bytes(), b"b", "a directory over an empty one")
    for name in ("a:b", "what?", "x.", "y ", "<|>", 'q"*'):
        (here / name).write_bytes(name.encode())
        equal((here / name).read_bytes(), name.encode(), name)
        if name not in os.listdir(here):
            raise Failure(f"{name!r} is not listed")
        os.unlink(here / name)
    os.link(here / "empty/a", here / "linked")
    equal(os.stat(here / "linked").st_nlink, 2, "links")
    equal(os.stat(here / "linked").st_ino, os.stat(here / "empty/a").st_ino, "one file, one number")
    shutil.rmtree(here / "empty")
    os.unlink(here / "linked")
    equal(sorted(p.name for p in there.iterdir()), [], "left on the server")


def attributes(here, there):
    """Sizes, times, READONLY and the room on the volume."""
    (here / "f").write_bytes(b"12345")
    os.truncate(here / "f", 3)
    equal((there / "f").read_bytes(), b"123", "cut")
    os.truncate(here / "f", 100_000)
    equal(os.stat(there / "f").st_size, 100_000, "extended")
    os.utime(here / "f", (1_500_000_000, 1_600_000_000))
    equal(os.stat(there / "f").st_mtime, 1_600_000_000, "time on the server")
    equal(os.stat(here / "f").st_mtime, 1_600_000_000, "time here")
    os.chmod(here / "f", 0o444)
    equal(os.stat(here / "f").st_mode & 0o222, 0, "write bits")
    os.chmod(here / "f", 0o644)
    if not os.stat(here / "f").st_mode & 0o200:
        raise Failure("it cannot be made writable again")
    room = os.statvfs(here)
    if not 0 < room.f_bavail <= room.f_blocks:
        raise Failure(f"room: {room}")
    os.unlink(here / "f")


def open_files(here, there):
    """A file that is removed, or replaced, while it is open goes on working."""
    with open(here / "gone", "w+b", buffering=0) as file:
        file.write(b"before ")
        os.unlink(here / "gone")
        refused(2, lambda: os.stat(here / "gone"))
        file.write(b"after")
        file.seek(0)
        equal(file.read(), b"before after", "an unlinked file")
        equal(os.fstat(file.fileno()).st_size, 12, "its size")
        if "gone" in os.listdir(here):
            raise Failure("it is still listed")
    (here / "old").write_bytes(b"old")
    (here / "new").write_bytes(b"new")
    with open(here / "old", "rb", buffering=0) as file:
        os.rename(here / "new", here / "old")
        equal(file.read(), b"old", "a replaced file")
        equal((here / "old").read_bytes(), b"new", "what replaced it")
    os.unlink(here / "old")
    until("nothing is left", lambda: not os.listdir(there), 5)


def maps(here, there):
    """Maps, private and shared, and what is read and written beside them."""
    (here / "mapped").write_bytes(bytes(300_000))
    with open(here / "mapped", "r+b", buffering=0) as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            equal(view[:10], bytes(10), "a private map")
        with mmap.mmap(file.fileno(), 0) as view:
            view[100_000:100_005] = b"hello"
            view.flush()
            equal(os.pread(file.fileno(), 5, 100_000), b"hello", "read beside a map")
            os.pwrite(file.fileno(), b"world", 200_000)
            equal(view[200_000:200_005], b"world", "mapped beside a write")
    found = (there / "mapped").read_bytes()
    equal((found[100_000:100_005], found[200_000:200_005]), (b"hello", b"world"), "on the server")
    os.unlink(here / "mapped")


def sparse(here, there):
    """Copies on the server, holes, reserved room."""
    data = os.urandom(3_000_000)
    (here / "from").write_bytes(data)
    with open(here / "from", "rb") as source, open(here / "to", "w+b") as target:
        left = len(data)
        while left:
            done = os.copy_file_range(source.fileno(), target.fileno(), left)
            if not done:
                raise Failure("copy_file_range does no more")
            left -= done
        os.posix_fallocate(target.fileno(), 0, 4_000_000)
        equal(os.fstat(target.fileno()).st_size, 4_000_000, "reserved")
        equal(os.lseek(target.fileno(), 0, os.SEEK_DATA), 0, "data")
        if os.lseek(target.fileno(), 0, os.SEEK_HOLE) > 4_000_000:
            raise Failure("a hole behind the end")
    if (there / "to").read_bytes()[:3_000_000] != data:
        raise Failure("the copy differs")
    os.unlink(here / "from")
    os.unlink(here / "to")


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
    """flock: the whole file, for the open file that took it; the next mount sees it too."""

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
        # Who has it writes through another file descriptor, as scripts do.
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


def background(ctx):
    """Without --foreground: it returns when the share is mounted, and goes on until it is unmounted."""
    server = ctx.server
    url = f"smb://{server.user}@{server.address}:{server.port}/{server.share}"
    folder, log = ctx.work / "behind", ctx.work / "behind.log"
    folder.mkdir()
    helper = ctx.work / "mount.frevo"
    helper.symlink_to(os.environ["FREVO_CLIENT"])
    program = os.environ["FREVO_CLIENT"]
    env = {"FREVO_PASSWORD": server.password}
    options = ["-o", f"rw,_netdev,noexec,uid=7,file_mode=0640,log_file={log}"]
    status, output = ctx.command(helper, url, folder, "-f", *options, env=env)
    if status or output.strip() or os.path.ismount(folder):
        raise Failure(f"mount -f: status {status}: {output.strip()[-200:]}")
    for command in (
        [program, "mount", "--noexec", "--uid", "7", "--file-mode", "0640", "--log-file", log, url, folder],
        [helper, url, folder, *options],
    ):
        status, output = ctx.command(*command, env=env)
        if status or output.strip() or not os.path.ismount(folder):
            raise Failure(f"status {status}: {output.strip()[-200:]}")
        try:
            (folder / "behind").write_bytes(b"x")
            found = os.stat(folder / "behind")
            equal(os.statvfs(folder).f_flag & os.ST_NOEXEC, os.ST_NOEXEC, "noexec")
            if server.kind != "frevo":
                equal((found.st_uid, found.st_mode & 0o777), (7, 0o640), "owner and mode")
            pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and str(folder) in command_of(p)]
            equal(len(pids), 1, "programs that are left")
            equal(os.getsid(pids[0]), pids[0], "a session of its own")
        finally:
            subprocess.run(["fusermount3", "-u", folder], check=True)
        until("it has ended", lambda: not os.path.exists(f"/proc/{pids[0]}"))
        os.unlink(server.path / "behind")
        log.unlink()
    status, output = ctx.command(program, "mount", url + "/nowhere", folder, env=env)
    if status != 6 or "no such file or directory" not in output:
        raise Failure(f"what is wrong is said before: {status}: {output.strip()[-200:]}")


def command_of(process):
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def seen(one, two):
    """Each of two mounts sees at once what the other does, with files open and closed."""
    for round in range(30):
        (one / "f").write_text(f"one {round}")
        equal((two / "f").read_text(), f"one {round}", "written by one")
        (two / "f").write_text(f"and two {round}")
        equal((one / "f").read_text(), f"and two {round}", "written by two")
    with open(one / "f", "r+b", buffering=0) as a, open(two / "f", "r+b", buffering=0) as b:
        # A server does not wait until readers have dropped what they keep, it only tells them (MS-SMB2 3.3.4.7):
        # for as long as that message is on its way they may read what was before.
        for round in range(30):
            for writer, reader, at in ((a, b, 0), (b, a, 100_000)):
                data = f"{round:08}".encode()
                os.pwrite(writer.fileno(), data, at)
                until("with both open", lambda: os.pread(reader.fileno(), 8, at) == data, 1)
            equal(os.fstat(a.fileno()).st_size, 100_008, "the size")
    for round in range(20):
        os.mkdir(one / "d")
        os.rename(two / "d", two / "e")
        if "d" in os.listdir(one) or "e" not in os.listdir(one):
            raise Failure("a listing is old")
        os.rmdir(one / "e")
        if os.path.exists(two / "e") or os.path.exists(one / "d"):
            raise Failure("a removed directory is still seen")
    os.unlink(two / "f")


def leased(one, two):
    """Listings and names that are not there are kept under leases on directories, until the other mount does something."""
    os.mkdir(one / "shared")
    here, there = one / "shared", two / "shared"
    until("the directory", lambda: os.path.exists(there), 3)
    for round in range(15):
        name = f"new {round}"
        for folder in (here, there):
            os.listdir(folder)
            for _ in range(5):
                refused(2, lambda: os.stat(folder / name))
        maker, other = (here, there) if round % 2 else (there, here)
        (maker / name).write_bytes(b"x")
        equal(name in os.listdir(maker), True, "what this mount made")
        # Nobody waits for the message that takes the lease, only the other's belief of a second for what it has.
        until("a name that was not there", lambda: os.path.exists(other / name), 2)
        until("a listing", lambda: name in os.listdir(other), 2)
        os.rename(other / name, other / "renamed")
        until("a name that is gone", lambda: "renamed" in os.listdir(maker) and not os.path.exists(maker / name), 2)
        os.unlink(maker / "renamed")
        until("nothing is listed", lambda: not os.listdir(other), 2)
    os.rmdir(there)
    until("the directory is gone", lambda: not os.path.exists(here), 3)


# Everything at once to the same few files. A local file system answers each of these, or that there is no such file.
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
        # A handle that only writes is not read from. SMB opens names: what another has put in a file's place meanwhile,
        # twice, since the kernel tries again, is said to be another.
        if e.errno not in (errno.ENOENT, errno.ESTALE) and (name, e.errno) != ("again", errno.EBADF):
            sys.exit(f"{name}: {e!r}")
    done += 1
print(done)
"""


def crowd(ctx, folders, there, seconds):
    """Six programs open, write, cut, move, remove and look at the same four files, in one or several mounts of them."""
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
    until(
        "the mount and the disk have the same names", lambda: sorted(os.listdir(here)) == sorted(os.listdir(there)), 5
    )
    for name in os.listdir(there):
        equal((here / name).read_bytes() == (there / name).read_bytes(), True, f"the bytes of {name}")
        equal(os.stat(here / name).st_size, os.stat(there / name).st_size, f"the length of {name}")
        os.unlink(here / name)


def run_fsx(ctx, folder, operations):
    config = ctx.work / "fsx.toml"
    config.write_text("[weights]\nclose_open = 0.3\nfsync = 0.1\n")
    status, output = ctx.command(
        FSX, "-q", "-N", operations, "-S", "7", "-f", config, "-P", ctx.work, "fsx.bin", cwd=folder, timeout=900
    )
    if status or "All operations completed A-OK" not in output:
        raise Failure(output.strip()[-250:])
    os.unlink(folder / "fsx.bin")


def programs(ctx, here, there):
    """git and cargo at work on the mount."""
    source = repository(ctx)
    crate = source / "crate"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n')
    (crate / "src/lib.rs").write_text("pub fn answer() -> u32 { 42 }\n")
    (crate / "src/main.rs").write_text('fn main() { println!("{}", small::answer()); }\n')
    commit = [*GIT, "-c", "user.name=Frevo", "-c", "user.email=frevo@localhost", "-C", source]
    ctx.command(*commit, "add", "-A")
    ctx.command(*commit, "commit", "-q", "-m", "a crate")
    with ctx.check("git-clone"):
        for command in (
            ["clone", "-q", "--no-hardlinks", f"file://{source}", here / "clone"],
            ["-C", here / "clone", "fsck", "--full", "--strict"],
        ):
            status, output = ctx.command(*GIT, *command, timeout=120)
            if status:
                raise Failure(output.strip()[-250:])
        status, output = ctx.command(*GIT, "-C", here / "clone", "status", "--porcelain")
        if status or output.strip():
            raise Failure(f"status: {output.strip()[-200:]}")
        mine = {k: v for k, v in trees.digest(source).items() if not k.startswith(b".git")}
        equal(
            {k: v for k, v in trees.digest(there / "clone").items() if not k.startswith(b".git")} == mine,
            True,
            "the same on disk",
        )
    with ctx.check("cargo-build"):
        for wanted in ("Compiling", "Finished"):
            status, output = ctx.command(
                "cargo",
                "build",
                "--offline",
                cwd=here / "clone/crate",
                timeout=300,
                env={"CARGO_TARGET_DIR": str(here / "clone/crate/target")},
            )
            if status or wanted not in output:
                raise Failure(output.strip()[-250:])
        if "Compiling" in output:
            raise Failure("it is built again although nothing has changed")
        status, output = ctx.command(here / "clone/crate/target/debug/small")
        equal(output.strip(), "42", "the program")
    shutil.rmtree(here / "clone")


def posix(here, there):
    """The POSIX extensions: modes, owners, kinds and names are the server's own."""
    old = os.umask(0o027)
    try:
        os.close(os.open(here / "f", os.O_CREAT | os.O_WRONLY, 0o664))
        os.mkdir(here / "d", 0o775)
    finally:
        os.umask(old)
    for path, mode in (("f", 0o640), ("d", 0o750)):
        equal((os.stat(here / path).st_mode & 0o777, os.stat(there / path).st_mode & 0o777), (mode, mode), path)
    os.chmod(here / "f", 0o605)
    own = os.stat(there / "f")
    try:
        os.chown(here / "f", 12, 34)
        raise Failure("an account that is no administrator has given a file away")
    except PermissionError as error:
        equal(error.errno, errno.EPERM, "chown")
    wanted = (0o605, own.st_uid, own.st_gid)
    found = os.stat(there / "f")
    equal((found.st_mode & 0o777, found.st_uid, found.st_gid), wanted, "chmod, and no chown")
    found = os.stat(here / "f")
    equal((found.st_mode & 0o777, found.st_uid, found.st_gid), wanted, "seen here")
    os.mkfifo(here / "pipe", 0o622)
    os.symlink("f", here / "link")
    equal(
        (stat.S_ISFIFO(os.lstat(there / "pipe").st_mode), stat.S_ISFIFO(os.lstat(here / "pipe").st_mode)),
        (True, True),
        "a FIFO",
    )
    equal((os.readlink(here / "link"), os.readlink(there / "link")), ("f", "f"), "a link")
    for name in ("a:b", "A:b", "what?", "x. "):
        (here / name).write_bytes(name.encode())
        equal((there / name).read_bytes(), name.encode(), f"{name} on the disk")
    equal(sorted(os.listdir(here)), sorted(os.listdir(there)), "the names")
    os.chmod(there / "d", 0o700)
    until("what the server's host changes", lambda: os.stat(here / "d").st_mode & 0o777 == 0o700, 5)
    shutil.rmtree(here / "d")
    for path in list(there.iterdir()):
        os.unlink(here / path.name)
    equal(list(there.iterdir()), [], "left on the server")


class Own:
    """A Frevo of this check alone, which can be killed."""

    def __init__(self, ctx, name="own", port=4460):
        self.ctx, self.folder, self.port = ctx, ctx.work / name, port
        (self.folder / "share").mkdir(parents=True)
        (self.folder / "password").write_text("Passw0rd")
        (self.folder / "password").chmod(0o600)
        self.start()

    def start(self):
        program = os.environ["FREVO_CLIENT"]
        command = [
            program,
            "serve",
            self.folder / "share",
            "--listen",
            f"127.0.0.1:{self.port}",
            "--user",
            "ann",
            "--password-file",
            self.folder / "password",
            "--state-dir",
            self.folder / "state",
        ]
        with open(self.folder / "said", "a") as said:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

        def listens():
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return True
            return False

        until("the server listens", listens)

    def kill(self):
        self.process.kill()
        self.process.wait()


# In a process of its own: whoever starts a program while he has files open here waits until those are flushed.
WORKER = """
import os, sys, threading, time
here, said = sys.argv[1], sys.argv[2]
data = open(here + "/read", "rb").read()
counts, stop = [0, 0], threading.Event()

def writer():
    with open(here + "/log", "wb", buffering=0) as file:
        while not stop.is_set():
            file.write(b"%09d\\n" % counts[0])
            if counts[0] % 50 == 0:
                os.fsync(file.fileno())
            counts[0] += 1
            time.sleep(0.001)

def reader():
    while not stop.is_set():
        if open(here + "/read", "rb").read() != data:
            raise SystemExit("other bytes are read")
        counts[1] += 1

def guarded(work):
    try:
        work()
    except BaseException as e:
        os.write(2, repr(e).encode())
        os._exit(1)

threads = [threading.Thread(target=guarded, args=(work,)) for work in (writer, reader)]
for thread in threads:
    thread.start()
while not os.path.exists(said + ".stop"):
    with open(said + ".new", "w") as file:
        file.write("%d %d" % tuple(counts))
    os.replace(said + ".new", said)
    time.sleep(0.05)
stop.set()
for thread in threads:
    thread.join()
print(counts[0])
"""


def killed(ctx):
    """kill -9 of the server, four times, under a program that reads and writes: a pause, and no error."""
    own = Own(ctx)
    said = ctx.work / "counts"
    try:
        with mounted(ctx, "survivor", url=f"smb://ann@127.0.0.1:{own.port}/share", password="Passw0rd") as here:
            (here / "read").write_bytes(os.urandom(5_000_000))
            worker = subprocess.Popen(
                [sys.executable, "-c", WORKER, here, said], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )

            def counts():
                return [int(word) for word in said.read_text().split()]

            until("it works", lambda: said.exists() and min(counts()) > 0)
            for _ in range(4):
                time.sleep(0.7)
                own.kill()
                before = counts()
                time.sleep(0.3)
                own.start()
                until(
                    "it goes on", lambda: worker.poll() is not None or all(n > b + 10 for n, b in zip(counts(), before))
                )
            said.with_suffix(".stop").touch()
            output, errors = worker.communicate(timeout=PATIENCE)
            if worker.returncode:
                raise Failure(errors.strip()[-250:])
            wanted = b"".join(b"%09d\n" % at for at in range(int(output)))
            equal((own.folder / "share/log").read_bytes() == wanted, True, "all that was written is there")
    finally:
        own.kill()


def gone(process, seconds=5):
    """It ends although nobody answers it."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired as e:
        raise Failure(f"{process.args[0]} is not gone within {seconds} s") from e


def reading(path):
    return subprocess.Popen(
        ["dd", f"if={path}", "of=/dev/null", "bs=64k", "skip=20"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def hung(ctx):
    """Who waits for a server that does not answer can be killed, and the mount goes on when it does; it can be unmounted too."""
    own = Own(ctx, "hung", 4461)
    url = f"smb://ann@127.0.0.1:{own.port}/share"
    data = os.urandom(3_000_000)
    mount = None
    try:
        mount = Mount(ctx, "patient", url=url, password="Passw0rd")
        here = mount.folder
        (here / "read").write_bytes(data)
        for signal_number in (signal.SIGKILL, signal.SIGTERM):
            own.process.send_signal(signal.SIGSTOP)
            waiters = [
                reading(here / "read"),
                subprocess.Popen(["stat", here / "none"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
            ]
            time.sleep(0.5)
            for waiter in waiters:
                waiter.send_signal(signal_number)
                gone(waiter)
            own.process.send_signal(signal.SIGCONT)
            equal((here / "read").read_bytes() == data, True, "what is read afterwards")
            (here / "new").write_bytes(b"new")
            equal((own.folder / "share/new").read_bytes(), b"new", "what is written afterwards")
        writer = subprocess.Popen(
            [sys.executable, "-c", HANGS, here / "unsent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        writer.stdout.readline()
        own.process.send_signal(signal.SIGSTOP)
        writer.stdin.write(b"\n")
        writer.stdin.flush()
        writer.stdout.readline()
        writer.kill()
        gone(writer)
        mount.process.terminate()
        # Whoever asks the folder itself would wait, and use it.
        until("it is unmounted", lambda: str(here) not in Path("/proc/self/mounts").read_text(), 5)
        # What was written is still to be sent; who does not want to wait says so again.
        time.sleep(0.5)
        equal(mount.process.poll(), None, "it tries to send what was written")
        mount.process.terminate()
        gone(mount.process)
        said = mount.said.read_text()
        equal(
            (mount.process.returncode, "4 bytes that were written to it are lost" in said),
            (130, True),
            "and says what is lost",
        )
    finally:
        own.process.send_signal(signal.SIGCONT)
        own.kill()
        if mount:
            mount.abandon()


HANGS = """
import sys
with open(sys.argv[1], "wb", buffering=0) as file:
    print("open", flush=True)
    sys.stdin.readline()
    file.write(b"lost")
    print("written", flush=True)
    sys.stdin.readline()
"""


def cancelled(ctx):
    """A READ that hangs in the server, whose disk does not answer: who waits is killed, and it is cancelled."""
    disk = ctx.work / "disk"
    (disk / "slow").mkdir(parents=True)
    own = Own(ctx, "slow", 4462)
    share = own.folder / "share"
    bindfs = subprocess.Popen(
        ["bindfs", "-f", disk, share], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until("the disk is there", lambda: os.path.ismount(share))
        own.kill()
        own.start()
        data = os.urandom(3_000_000)
        (disk / "slow/read").write_bytes(data)
        with mounted(ctx, "canceller", url=f"smb://ann@127.0.0.1:{own.port}/share", password="Passw0rd") as here:
            for round in range(3):
                # Nobody has read anything near it before.
                at = 700_000 * (round + 1)
                with open(here / "slow/read", "rb", buffering=0) as file:
                    file.read(4096)
                    bindfs.send_signal(signal.SIGSTOP)
                    waiter = subprocess.Popen([sys.executable, "-c", f"import os; os.pread(0, 4096, {at})"], stdin=file)
                    # Long enough to be put off by the server.
                    time.sleep(1.5)
                    equal(waiter.poll(), None, "who reads waits")
                    waiter.kill()
                    gone(waiter)
                    bindfs.send_signal(signal.SIGCONT)
                    equal(os.pread(file.fileno(), 4096, at), data[at : at + 4096], "the same file goes on")
                (here / f"slow/new{round}").write_bytes(b"new")
                equal((disk / f"slow/new{round}").read_bytes(), b"new", "and the mount")
    finally:
        bindfs.send_signal(signal.SIGCONT)
        own.kill()
        subprocess.run(["umount", "-l", share], check=False)
        bindfs.wait()


def helpful(ctx):
    """What cannot be mounted says why."""
    server = ctx.server
    url = f"smb://{server.user}@{server.address}:{server.port}/{server.share}"
    full = ctx.work / "full"
    (full / "x").mkdir(parents=True)
    empty = ctx.work / "vacant"
    empty.mkdir()
    cases = [
        ([url, ctx.work / "missing"], 6, "does not exist", None),
        ([url, full], 1, "not empty", None),
        ([url.replace("/share", "/nothing"), empty], 6, "no share of that name", None),
        ([url + "/nowhere", empty], 6, "no such file or directory", None),
        ([url, empty], 4, "user name or password", "wrong"),
        ([f"smb://x@{server.address}:9/share", empty], 5, "refused", None),
    ]
    for arguments, code, text, password in cases:
        env = {"FREVO_PASSWORD": password or server.password}
        status, output = ctx.command(os.environ["FREVO_CLIENT"], "mount", *arguments, env=env)
        if status != code or text not in output:
            raise Failure(f"wanted {code} and {text!r}, got {status}: {output.strip()[-200:]}")


@group("client/mount")
def mount(ctx):
    """frevo mount: files, names, maps, locks, leases; in full git, cargo and a server that is killed"""
    there = ctx.server.path
    if why := no_fuse():
        ctx.add("fuse", "skip", 0.0, why)
        return
    with ctx.check("errors"):
        helpful(ctx)
    with ctx.check("mount-and-unmount"), mounted(ctx) as here:
        with ctx.check("tree"):
            tree(ctx, here, there)
        with ctx.check("names"):
            names(here, there)
        with ctx.check("attributes"):
            attributes(here, there)
        with ctx.check("open-files"):
            open_files(here, there)
        with ctx.check("maps"):
            maps(here, there)
        with ctx.check("ranges"):
            sparse(here, there)
        if ctx.server.kind == "frevo":
            with ctx.check("posix"):
                posix(here, there)
        with ctx.check("crowd"):
            crowd(ctx, [here], there, 15 if ctx.full else 4)
        with ctx.check("fsx"):
            run_fsx(ctx, here, 20_000 if ctx.full else 1_500)
        if ctx.full:
            programs(ctx, here, there)
        (here / "unsent").write_bytes(b"")
        last = open(here / "last", "wb", buffering=0)
        last.write(b"gathered")
        last.close()
    with ctx.check("unmount-writes"):
        equal((there / "last").read_bytes(), b"gathered", "on the server after the unmount")
    with (
        ctx.check("two-mounts"),
        mounted(ctx, "first", "--attr-timeout", "0") as one,
        mounted(ctx, "second", "--attr-timeout", "0") as two,
    ):
        seen(one, two)
        with ctx.check("locks"):
            locks(one, two)
        with ctx.check("flock"):
            flocks(one, two)
    with ctx.check("dir-leases"), mounted(ctx, "third") as one, mounted(ctx, "fourth") as two:
        leased(one, two)
    with ctx.check("background"):
        background(ctx)
    with ctx.check("read-only"), mounted(ctx, "reading", "-r") as here:
        equal((here / "last").read_bytes(), b"gathered", "read")
        refused(30, lambda: (here / "new").write_bytes(b""))
    with ctx.check("no-posix"), mounted(ctx, "mapped", "--no-posix", "--file-mode", "0640") as here:
        for left in ("last", "unsent"):
            os.unlink(here / left)
        names(here, there)
        (here / "f").write_bytes(b"f")
        equal(os.stat(here / "f").st_mode & 0o777, 0o640, "the mode that was asked for")
        os.unlink(here / "f")
    with ctx.check("crowd-two-mounts"), mounted(ctx, "fifth") as one, mounted(ctx, "sixth") as two:
        crowd(ctx, [one, two], there, 15 if ctx.full else 4)
    with ctx.check("no-cache"), mounted(ctx, "uncached", "--no-cache") as here:
        data = os.urandom(400_000)
        (here / "plain").write_bytes(data)
        equal((here / "plain").read_bytes() == data and (there / "plain").read_bytes() == data, True, "the bytes")
    if ctx.full and ctx.server.kind == "frevo":
        with ctx.check("server-killed"):
            killed(ctx)
    if ctx.server.kind == "frevo":
        with ctx.check("server-hangs"):
            hung(ctx)
        if shutil.which("bindfs"):
            with ctx.check("read-cancelled"):
                cancelled(ctx)
        else:
            ctx.add("read-cancelled", "skip", 0.0, "no bindfs here")
