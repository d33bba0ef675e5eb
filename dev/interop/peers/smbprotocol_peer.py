"""smbprotocol against the server in SMB_*; the argument is `signed` or `sealed`."""

import os
import sys
import uuid

import smbclient
from smbprotocol.connection import Connection
from smbprotocol.exceptions import LogonFailure, SMBOSError
from smbprotocol.file_info import FileStandardInformation, InfoType
from smbprotocol.open import (
    CreateDisposition,
    CreateOptions,
    FileAttributes,
    FilePipePrinterAccessMask,
    ImpersonationLevel,
    Open,
    ShareAccess,
    SMB2QueryInfoRequest,
    SMB2QueryInfoResponse,
)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from report import check, pattern

address, port, share, user, password = (os.environ["SMB_" + k] for k in ("ADDR", "PORT", "SHARE", "USER", "PASS"))
sealed = sys.argv[1] == "sealed"
base = rf"\\{address}\{share}"
options = dict(username=user, password=password, port=int(port), encrypt=sealed)
READ_WRITE = FilePipePrinterAccessMask.GENERIC_READ | FilePipePrinterAccessMask.GENERIC_WRITE


def path(name):
    return base + "\\" + name


def write(name, data, mode="wb", **more):
    with smbclient.open_file(path(name), mode, **options, **more) as f:
        f.write(data)


def read(name):
    with smbclient.open_file(path(name), "rb", **options) as f:
        return f.read()


with check("write-read"):
    for size in (0, 1, 65_536, 3_000_001):
        write("moved.bin", pattern(size))
        assert read("moved.bin") == pattern(size), size
    smbclient.remove(path("moved.bin"), **options)
    assert "moved.bin" not in smbclient.listdir(base, **options)
with check("list"):
    smbclient.mkdir(path("listed"), **options)
    wanted = {f"näme {i:03} 🦀" for i in range(60)}
    for name in wanted:
        write("listed\\" + name, name.encode())
    assert set(smbclient.listdir(path("listed"), **options)) == wanted
    sizes = {e.name: e.stat().st_size for e in smbclient.scandir(path("listed"), **options)}
    assert sizes == {n: len(n.encode()) for n in wanted}, sizes
with check("stat"):
    write("stat.bin", pattern(12_345))
    told = smbclient.stat(path("stat.bin"), **options)
    assert told.st_size == 12_345, told
    volume = smbclient.stat_volume(base, **options)
    assert volume.total_size >= volume.actual_available_size > 0, volume
with check("rename"):
    smbclient.rename(path("stat.bin"), path("renamed.bin"), **options)
    assert read("renamed.bin") == pattern(12_345)
    write("target.bin", b"x")
    try:
        smbclient.rename(path("renamed.bin"), path("target.bin"), **options)
    except SMBOSError as e:
        assert e.ntstatus == 0xC0000035, hex(e.ntstatus)  # OBJECT_NAME_COLLISION
    else:
        raise AssertionError("renamed over what exists")
    smbclient.replace(path("renamed.bin"), path("target.bin"), **options)
    assert read("target.bin") == pattern(12_345)
with check("directories"):
    smbclient.makedirs(path("one\\two\\three"), **options)
    write("one\\two\\file", b"x")
    try:
        smbclient.rmdir(path("one\\two"), **options)
    except SMBOSError as e:
        assert e.ntstatus == 0xC0000101, hex(e.ntstatus)  # DIRECTORY_NOT_EMPTY
    else:
        raise AssertionError("a full directory was removed")
    seen = [(d, f) for _, d, f in smbclient.walk(path("one"), **options)]
    assert seen == [(["two"], []), (["three"], ["file"]), ([], [])], seen
with check("times"):
    smbclient.utime(path("target.bin"), ns=(10**18 + 100, 10**18 + 123_456_700), **options)
    assert smbclient.stat(path("target.bin"), **options).st_mtime_ns == 10**18 + 123_456_700
with check("append"):
    write("appended.bin", b"one ")
    write("appended.bin", b"two", mode="ab")
    assert read("appended.bin") == b"one two"
with check("lock-out"):
    with smbclient.open_file(path("exclusive.bin"), "wb", share_access=None, **options) as f:
        f.write(b"mine")
        try:
            read("exclusive.bin")
        except SMBOSError as e:
            assert e.ntstatus == 0xC0000043, hex(e.ntstatus)  # SHARING_VIOLATION
        else:
            raise AssertionError("opened although nothing was shared")
    assert read("exclusive.bin") == b"mine"

# From here on the test sends raw requests.
connection = Connection(uuid.uuid4(), address, int(port))
connection.connect()
session = Session(connection, user, password, require_encryption=sealed)
session.connect()
tree = TreeConnect(session, base)
tree.connect()


def opened(name, disposition=CreateDisposition.FILE_OVERWRITE_IF, create_options=0, access=READ_WRITE):
    handle = Open(tree, name)
    handle.create(
        ImpersonationLevel.Impersonation,
        access,
        FileAttributes.FILE_ATTRIBUTE_NORMAL,
        ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE | ShareAccess.FILE_SHARE_DELETE,
        disposition,
        CreateOptions.FILE_NON_DIRECTORY_FILE | create_options,
    )
    return handle


with check("delete-on-close"):
    handle = opened(
        "short-lived.bin",
        create_options=CreateOptions.FILE_DELETE_ON_CLOSE,
        access=READ_WRITE | FilePipePrinterAccessMask.DELETE,
    )
    handle.write(b"x", 0)
    assert "short-lived.bin" in smbclient.listdir(base, **options)
    handle.close(False)
    assert "short-lived.bin" not in smbclient.listdir(base, **options)
with check("compound"):
    handle = Open(tree, "compound.bin")
    query = SMB2QueryInfoRequest()
    query["info_type"] = InfoType.SMB2_0_INFO_FILE
    query["file_info_class"] = 5  # FileStandardInformation
    query["output_buffer_length"] = 4096
    query["file_id"] = b"\xff" * 16
    messages = [
        handle.create(
            ImpersonationLevel.Impersonation,
            READ_WRITE,
            FileAttributes.FILE_ATTRIBUTE_NORMAL,
            ShareAccess.FILE_SHARE_READ,
            CreateDisposition.FILE_OVERWRITE_IF,
            CreateOptions.FILE_NON_DIRECTORY_FILE,
            send=False,
        ),
        handle.write(pattern(5000), 0, send=False),
        (query, None),
        handle.close(True, send=False),
    ]
    requests = connection.send_compound(
        [m[0] for m in messages], session.session_id, tree.tree_connect_id, related=True
    )
    messages[0][1](requests[0])
    assert messages[1][1](requests[1]) == 5000
    answer = SMB2QueryInfoResponse()
    answer.unpack(connection.receive(requests[2])["data"].get_value())
    information = FileStandardInformation()
    information.unpack(answer["buffer"].get_value())
    assert information["end_of_file"].get_value() == 5000, information
    messages[3][1](requests[3])
    assert read("compound.bin") == pattern(5000)
with check("echo"):
    assert connection.echo(session.session_id) > 0
with check("wrong-password"):
    second = Connection(uuid.uuid4(), address, int(port))
    second.connect()
    try:
        Session(second, user, "no such word", require_encryption=sealed).connect()
    except LogonFailure:
        pass
    else:
        raise AssertionError("logged on")
    finally:
        second.disconnect(True)
with check("left"):
    write("left by smbprotocol.bin", pattern(3_000_001))
connection.disconnect(True)
