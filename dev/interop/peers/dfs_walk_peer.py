"""Walks a folder of a namespace and writes {path: "dir" or "SIZE SHA-256"} as JSON.

dfs_walk_peer.py smbprotocol|impacket|mounted FOLDER FILE, with the share in SMB_*; `mounted` walks the current
directory.
"""

import hashlib
import io
import json
import os
import sys
from pathlib import Path

address, share, user, password = (os.environ["SMB_" + k] for k in ("ADDR", "SHARE", "USER", "PASS"))


def entry(data):
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"


def walk_smbprotocol(top, found):
    import smbclient

    smbclient.ClientConfig(username=user, password=password)

    def walk(path):
        for one in smbclient.scandir(f"\\\\{address}\\{share}\\" + path.replace("/", "\\")):
            inside = f"{path}/{one.name}"
            # A link has the attributes of a folder.
            if one.is_dir(follow_symlinks=False):
                found[inside] = "dir"
                walk(inside)
            else:
                with smbclient.open_file(one.path, mode="rb", share_access="r") as file:
                    found[inside] = entry(file.read())

    walk(top)


class Impacket:
    """impacket knows no links: this asks for their referrals, and goes to their targets.

    When impacket signs it takes the flag of DFS away from its requests: paths begin behind the share.
    """

    def __init__(self):
        self.connections = {}

    def connection(self, host):
        from impacket.smbconnection import SMBConnection

        if host not in self.connections:
            made = SMBConnection(host, host, timeout=5)
            made.login(user, password)
            self.connections[host] = made
        return self.connections[host]

    def refer(self, path):
        """Returns the part of `\\host\\share\\path` that a referral consumes, and its first target."""
        from impacket.smb3structs import FSCTL_DFS_GET_REFERRALS

        connection = self.connection(path.split("\\")[1])
        tree = connection.connectTree("IPC$")
        asked = (4).to_bytes(2, "little") + (path + "\0").encode("utf-16-le")
        server = connection.getSMBServer()
        answer = server.ioctl(tree, None, FSCTL_DFS_GET_REFERRALS, flags=1, inputBlob=asked, maxOutputResponse=65536)
        connection.disconnectTree(tree)
        consumed, count = (int.from_bytes(answer[at : at + 2], "little") for at in (0, 2))
        if not count:
            raise FileNotFoundError(path)
        at = 8 + int.from_bytes(answer[8 + 16 : 8 + 18], "little")  # NetworkAddressOffset
        target = answer[at:].decode("utf-16-le").split("\0")[0]
        return path[: consumed // 2], target

    def walk(self, place, path, found, hops=0):
        from impacket.smbconnection import SessionError

        _, host, share, inside = (place + "\\").split("\\", 3)
        inside = inside.strip("\\")
        try:
            entries = self.anew(host, lambda connection: connection.listPath(share, inside + "\\*"))
        except SessionError as e:
            if e.getErrorCode() != 0xC0000257 or hops > 4:  # PATH_NOT_COVERED
                raise
            consumed, target = self.refer(place)
            self.walk(target + place[len(consumed) :], path, found, hops + 1)
            return
        for one in entries:
            name = one.get_longname()
            if name in (".", ".."):
                continue
            if one.is_directory():
                found[f"{path}/{name}"] = "dir"
                self.walk(f"{place}\\{name}", f"{path}/{name}", found)
            else:
                data = self.anew(host, lambda connection, name=name: self.read(connection, share, f"{inside}\\{name}"))
                found[f"{path}/{name}"] = entry(data)

    @staticmethod
    def read(connection, share, path):
        data = io.BytesIO()
        connection.getFile(share, path, data.write)
        return data.getvalue()

    def anew(self, host, act):
        """Returns what `act` does with the connection to a host; once more with a new one, if no answer comes."""
        from impacket.nmb import NetBIOSError

        try:
            return act(self.connection(host))
        except NetBIOSError:
            print(f"{host}: connected again")
            del self.connections[host]
            return act(self.connection(host))


def walk_impacket(top, found):
    Impacket().walk(f"\\{address}\\{share}\\" + top.replace("/", "\\"), top, found)


def fail(error):
    raise error


def walk_mounted(top, found):
    for where, folders, files in os.walk(top, onerror=fail):
        for name in folders:
            found[f"{where}/{name}"] = "dir"
        for name in files:
            found[f"{where}/{name}"] = entry(Path(where, name).read_bytes())


found = {}
library, top, to = sys.argv[1:]
{"smbprotocol": walk_smbprotocol, "impacket": walk_impacket, "mounted": walk_mounted}[library](top, found)
Path(to).write_text(json.dumps(found))
