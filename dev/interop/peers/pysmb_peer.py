"""pysmb against the server in SMB_*: it begins with a NEGOTIATE of SMB1 that offers SMB 2.0.2 and nothing newer."""

import contextlib
import io
import os

from smb.base import NotReadyError
from smb.smb_structs import OperationFailure
from smb.SMBConnection import SMBConnection

from report import check, pattern

address, port, share, user, password = (os.environ["SMB_" + k] for k in ("ADDR", "PORT", "SHARE", "USER", "PASS"))


def connected(secret):
    """Returns a connection, and the result of its logon."""
    made = SMBConnection(user, secret, "peer", "server", use_ntlm_v2=True, is_direct_tcp=True)
    return made, made.connect(address, int(port), timeout=10)


def write(name, data):
    connection.storeFile(share, name, io.BytesIO(data))


def read(name):
    got = io.BytesIO()
    connection.retrieveFile(share, name, got)
    return got.getvalue()


def names(path, pattern="*"):
    return {f.filename for f in connection.listPath(share, path, pattern=pattern)} - {".", ".."}


with check("login"):
    connection, accepted = connected(password)
    assert accepted and connection.isUsingSMB2
with check("list-shares"):
    assert share in {s.name for s in connection.listShares()}
with check("write-read"):
    for size in (0, 1, 65_536, 3_000_001):
        write("moved.bin", pattern(size))
        assert read("moved.bin") == pattern(size), size
    connection.deleteFiles(share, "moved.bin")
    assert "moved.bin" not in names("/")
with check("list"):
    connection.createDirectory(share, "listed")
    wanted = {f"näme {i:03}" for i in range(60)}
    for name in wanted:
        write("listed/" + name, name.encode())
    assert names("listed") == wanted
    assert len(names("listed", "näme 01*")) == 10
    connection.deleteFiles(share, "listed/*")
    connection.deleteDirectory(share, "listed")
with check("offset"):
    write("offset", pattern(5000))
    connection.storeFileFromOffset(share, "offset", io.BytesIO(b"x" * 10), offset=1000)
    got = io.BytesIO()
    connection.retrieveFileFromOffset(share, "offset", got, offset=990, max_length=30)
    assert got.getvalue() == pattern(5000)[990:1000] + b"x" * 10 + pattern(5000)[1010:1020]
    connection.deleteFiles(share, "offset")
with check("stat"):
    write("stat", pattern(77))
    found = connection.getAttributes(share, "stat")
    assert found.file_size == 77 and not found.isDirectory
    connection.deleteFiles(share, "stat")
with check("rename"):
    write("before", b"text")
    connection.rename(share, "before", "after")
    assert read("after") == b"text" and "before" not in names("/")
    connection.deleteFiles(share, "after")
with check("security"):
    write("secured", b"")
    assert connection.getSecurity(share, "secured").owner
    connection.deleteFiles(share, "secured")
with check("absent"):
    try:
        connection.getAttributes(share, "absent")
    except OperationFailure:
        pass
    else:
        raise AssertionError("an absent file has attributes")
with check("echo"):
    assert connection.echo(b"text") == b"text"
with check("left"):
    write("left by pysmb.bin", pattern(3_000_001))
with check("wrong-password"), contextlib.suppress(NotReadyError):
    assert not connected("wrong")[1]
connection.close()
