"""Checks of one mount: names, attributes, open files, maps, holes and POSIX modes."""

import errno
import mmap
import os
import shutil
import stat

from ... import trees
from ...model import Failure
from .fixture import equal, refused, until


def tree(ctx, here, there):
    """Copies a tree of odd names onto the mount and back, and compares it on the server's disk."""
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
        raise Failure("the tree was not removed")


def names(here, there):
    """Making, renaming and removing names, and names that are reserved in SMB."""
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
    """Sizes, times, READONLY and the free space of the volume."""
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
        raise Failure("the file cannot be made writable again")
    room = os.statvfs(here)
    if not 0 < room.f_bavail <= room.f_blocks:
        raise Failure(f"wrong free space: {room}")
    os.unlink(here / "f")


def open_files(here, there):
    """An open file stays usable after it is removed or replaced."""
    with open(here / "gone", "w+b", buffering=0) as file:
        file.write(b"before ")
        os.unlink(here / "gone")
        refused(2, lambda: os.stat(here / "gone"))
        file.write(b"after")
        file.seek(0)
        equal(file.read(), b"before after", "an unlinked file")
        equal(os.fstat(file.fileno()).st_size, 12, "its size")
        if "gone" in os.listdir(here):
            raise Failure("the removed file is still listed")
    (here / "old").write_bytes(b"old")
    (here / "new").write_bytes(b"new")
    with open(here / "old", "rb", buffering=0) as file:
        os.rename(here / "new", here / "old")
        equal(file.read(), b"old", "a replaced file")
        equal((here / "old").read_bytes(), b"new", "what replaced it")
    os.unlink(here / "old")
    until("nothing is left", lambda: not os.listdir(there), 5)


def maps(here, there):
    """Private and shared maps, with reads and writes of the same file."""
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
    """Copies on the server, holes, preallocation."""
    data = os.urandom(3_000_000)
    (here / "from").write_bytes(data)
    with open(here / "from", "rb") as source, open(here / "to", "w+b") as target:
        left = len(data)
        while left:
            done = os.copy_file_range(source.fileno(), target.fileno(), left)
            if not done:
                raise Failure("copy_file_range stopped early")
            left -= done
        os.posix_fallocate(target.fileno(), 0, 4_000_000)
        equal(os.fstat(target.fileno()).st_size, 4_000_000, "reserved")
        equal(os.lseek(target.fileno(), 0, os.SEEK_DATA), 0, "data")
        if os.lseek(target.fileno(), 0, os.SEEK_HOLE) > 4_000_000:
            raise Failure("a hole after the end of the file")
    if (there / "to").read_bytes()[:3_000_000] != data:
        raise Failure("the copy differs")
    os.unlink(here / "from")
    os.unlink(here / "to")


def posix(here, there):
    """The POSIX extensions: modes, owners, file types and names are those of the server's disk."""
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
        raise Failure("an ordinary account could give a file away")
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
