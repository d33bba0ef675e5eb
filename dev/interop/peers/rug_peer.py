"""The host changes files under a client's open handles; the argument is the share's directory on the host."""

import os
import shutil
import sys
import uuid
from pathlib import Path

import smbclient
from smbprotocol.connection import Connection
from smbprotocol.exceptions import SMBException, SMBOSError
from smbprotocol.open import (
    CreateDisposition,
    CreateOptions,
    FileAttributes,
    FilePipePrinterAccessMask,
    ImpersonationLevel,
    Open,
    ShareAccess,
)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from report import check, pattern

address, port, share, user, password = (os.environ["SMB_" + k] for k in ("ADDR", "PORT", "SHARE", "USER", "PASS"))
disk = Path(sys.argv[1])
base = rf"\\{address}\{share}"
options = dict(username=user, password=password, port=int(port))
connection = Connection(uuid.uuid4(), address, int(port))
connection.connect()
session = Session(connection, user, password, require_encryption=False)
session.connect()
tree = TreeConnect(session, base)
tree.connect()
ALL = (
    FilePipePrinterAccessMask.GENERIC_READ | FilePipePrinterAccessMask.GENERIC_WRITE | FilePipePrinterAccessMask.DELETE
)


def path(name):
    return base + "\\" + name


def opened(name, create_options=CreateOptions.FILE_NON_DIRECTORY_FILE):
    handle = Open(tree, name)
    handle.create(
        ImpersonationLevel.Impersonation,
        ALL,
        FileAttributes.FILE_ATTRIBUTE_NORMAL,
        ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE | ShareAccess.FILE_SHARE_DELETE,
        CreateDisposition.FILE_OPEN_IF,
        create_options,
    )
    return handle


def put(name, data):
    with smbclient.open_file(path(name), "wb", **options) as f:
        f.write(data)


def get(name):
    with smbclient.open_file(path(name), "rb", **options) as f:
        return f.read()


def refused(function, *args, wanted, **more):
    """Fails unless the action fails with one of these NTSTATUS values."""
    try:
        function(*args, **more)
    except (SMBOSError, SMBException) as e:
        # The library's SMBLinkRedirectionError has no status: the library refuses a link that
        # leaves the share.
        status = getattr(e, "ntstatus", getattr(e, "status", STOPPED))
        assert status in wanted, f"{e}: not among {[hex(w) for w in wanted]}"
    else:
        raise AssertionError("it was not refused")


ACCESS_DENIED, NAME_NOT_FOUND, PATH_NOT_FOUND, STOPPED = 0xC0000022, 0xC0000034, 0xC000003A, 0x8000002D
FILE_DELETED, NO_SUCH_FILE = 0xC0000123, 0xC000000F

with check("removed-while-open"):
    handle = opened("removed.bin")
    handle.write(pattern(100_000), 0)
    (disk / "removed.bin").unlink()
    assert handle.read(0, 1000) == pattern(1000)
    handle.write(b"on", 0)
    refused(get, "removed.bin", wanted=[NAME_NOT_FOUND])
    put("removed.bin", b"a new one")
    assert handle.read(0, 2) == b"on", "two files of one name are one"
    handle.close(False)
    assert (disk / "removed.bin").read_bytes() == b"a new one" == get("removed.bin")
with check("replaced-before-delete-on-close"):
    handle = opened("replaced.bin", CreateOptions.FILE_NON_DIRECTORY_FILE | CreateOptions.FILE_DELETE_ON_CLOSE)
    (disk / "replaced.bin").rename(disk / "moved away.bin")
    (disk / "replaced.bin").write_bytes(b"not yours")
    handle.close(False)
    assert (disk / "replaced.bin").read_bytes() == b"not yours", "another's file was deleted"
with check("truncated-while-open"):
    handle = opened("truncated.bin")
    handle.write(pattern(50_000), 0)
    os.truncate(disk / "truncated.bin", 10)
    assert handle.read(0, 1000) == pattern(10)
    handle.close(False)
with check("directory-renamed"):
    smbclient.makedirs(path("old\\sub"), **options)
    handle = opened("old\\sub\\file.bin")
    handle.write(pattern(1000), 0)
    (disk / "old").rename(disk / "new")
    handle.write(pattern(1000), 1000)
    handle.close(False)
    assert (disk / "new/sub/file.bin").read_bytes() == pattern(1000) * 2
    refused(smbclient.listdir, path("old"), wanted=[NAME_NOT_FOUND], **options)
    assert smbclient.listdir(path("NEW\\SUB"), **options) == ["file.bin"]
    put("new\\sub\\second.bin", b"x")
    assert sorted(os.listdir(disk / "new/sub")) == ["file.bin", "second.bin"]
with check("directories-swapped"):
    for name in ("a", "b"):
        smbclient.makedirs(path(name), **options)
        put(name + "\\which", name.encode())
    assert get("A\\Which") == b"a"
    (disk / "a").rename(disk / "t"), (disk / "b").rename(disk / "a"), (disk / "t").rename(disk / "b")
    assert get("A\\Which") == b"b" and get("B\\Which") == b"a", "an old name is remembered"
with check("case-changed"):
    put("Case.txt", b"1")
    assert get("CASE.TXT") == b"1"
    (disk / "Case.txt").rename(disk / "cASE.txt")
    assert get("Case.txt") == b"1" and get("CASE.TXT") == b"1"
    (disk / "cASE.txt").unlink()
    refused(get, "Case.txt", wanted=[NAME_NOT_FOUND])
with check("directory-becomes-link-out"):
    smbclient.makedirs(path("door"), **options)
    put("door\\passwd", b"harmless")
    shutil.rmtree(disk / "door")
    (disk / "door").symlink_to("/etc")
    for name in ("door\\passwd", "DOOR\\passwd"):
        refused(get, name, wanted=[ACCESS_DENIED, NAME_NOT_FOUND, PATH_NOT_FOUND, STOPPED])
    refused(put, "door\\frevo-was-here", b"x", wanted=[ACCESS_DENIED, NAME_NOT_FOUND, PATH_NOT_FOUND, STOPPED])
    assert not os.path.exists("/etc/frevo-was-here")
    (disk / "door").unlink()
with check("removed-while-listed"):
    (disk / "listed").mkdir()
    for i in range(3000):
        (disk / "listed" / f"{i:04} {'x' * 40}").touch()
    entries = smbclient.scandir(path("listed"), **options)
    first = [next(entries).name for _ in range(10)]
    shutil.rmtree(disk / "listed")
    try:
        rest = [e.name for e in entries]
    except SMBOSError as e:
        assert e.ntstatus in (FILE_DELETED, NO_SUCH_FILE), hex(e.ntstatus)
    else:
        assert len(set(first + rest)) == 10 + len(rest) <= 3000, "listed twice"
    refused(smbclient.listdir, path("listed"), wanted=[NAME_NOT_FOUND], **options)
with check("all-removed"):
    for entry in disk.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    assert smbclient.listdir(base, **options) == []
    put("still here", b"yes")
    assert get("still here") == b"yes"
connection.disconnect(True)
