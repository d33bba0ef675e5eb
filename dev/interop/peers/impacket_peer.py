"""impacket against the server in SMB_*; the argument is the dialect."""

import io
import os
import sys

from impacket.smbconnection import SessionError, SMBConnection

from report import check, pattern

address, port, share, user, password = (os.environ["SMB_" + k] for k in ("ADDR", "PORT", "SHARE", "USER", "PASS"))
dialect = int(sys.argv[1], 16)


def connect(word):
    connection = SMBConnection(address, address, sess_port=int(port), preferredDialect=dialect)
    connection.login(user, word)
    return connection


def names(directory):
    found = {f.get_longname() for f in c.listPath(share, directory + "\\*")}
    return found - {".", ".."}


with check("login"):
    c = connect(password)
    assert c.getDialect() == dialect, hex(c.getDialect())
with check("list-shares"):
    shares = {s["shi1_netname"][:-1] for s in c.listShares()}
    assert {share, "IPC$"} <= shares, shares
with check("write-read"):
    for size in (0, 1, 65_536, 3_000_001):
        data, back = pattern(size), io.BytesIO()
        c.putFile(share, "moved.bin", io.BytesIO(data).read)
        c.getFile(share, "moved.bin", back.write)
        assert back.getvalue() == data, f"{size} bytes written, {len(back.getvalue())} others read"
    c.deleteFile(share, "moved.bin")
with check("list"):
    c.createDirectory(share, "listed")
    wanted = {f"näme {i:03} 日本" for i in range(60)}
    for name in wanted:
        c.putFile(share, "listed\\" + name, io.BytesIO(name.encode()).read)
    assert names("listed") == wanted, names("listed") ^ wanted
with check("directories"):
    c.createDirectory(share, "one")
    c.createDirectory(share, "one\\two")
    try:
        c.deleteDirectory(share, "one")
    except SessionError as e:
        assert e.getErrorCode() == 0xC0000101, hex(e.getErrorCode())  # DIRECTORY_NOT_EMPTY
    else:
        raise AssertionError("a full directory was removed")
    c.deleteDirectory(share, "one\\two")
    c.deleteDirectory(share, "one")
    assert "one" not in names("")
with check("rename"):
    c.putFile(share, "old.bin", io.BytesIO(pattern(999)).read)
    c.rename(share, "old.bin", "listed\\new.bin")
    back = io.BytesIO()
    c.getFile(share, "listed\\new.bin", back.write)
    assert back.getvalue() == pattern(999) and "old.bin" not in names("")
with check("wrong-password"):
    try:
        connect("no such word")
    except SessionError as e:
        assert e.getErrorCode() == 0xC000006D, hex(e.getErrorCode())  # LOGON_FAILURE
    else:
        raise AssertionError("logged on")
with check("left"):
    c.putFile(share, "left by impacket.bin", io.BytesIO(pattern(3_000_001)).read)
