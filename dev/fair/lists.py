"""Attacks by long access lists, by long patterns of names, and by what makes lines in logs."""

import itertools
import os
import struct
import time

from client import CLOSE, CREATE, QUERY_DIRECTORY, SET_INFO, close, create, query_directory

from attacks import DIRECTORY, LIST, Attack, Searches, keep_busy

READ_DATA, ALL = 0x120089, 0x1F01FF
MAKE, OPEN = 2, 1
DELETE_ON_CLOSE, RESTART = 0x1000, 1
#: The kind of SET_INFO for a descriptor, and the part that is the access list: MS-SMB2 2.2.39.
SECURITY, DACL = 3, 4
EVERYONE = struct.pack("<BB6sI", 1, 1, bytes(5) + b"\1", 0)
#: Entries that objects and containers below inherit.
INHERITED = 3


def descriptor(entries):
    """A descriptor whose last entry lets everybody in, behind others for users that nobody has."""
    aces = b""
    for number in range(entries):
        sid = struct.pack("<BB6s5I", 1, 5, bytes(5) + b"\5", 21, 1, 2, 3, 100_000 + number)
        aces += struct.pack("<BBHI", 0, INHERITED, 8 + len(sid), READ_DATA) + sid
    aces += struct.pack("<BBHI", 0, INHERITED, 8 + len(EVERYONE), ALL) + EVERYONE
    acl = struct.pack("<BBHHH", 2, 0, 8 + len(aces), entries + 1, 0) + aces
    return struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + acl


def set_list(file, value):
    """SET_INFO of an access list."""
    return struct.pack("<HBBIHHI", 33, SECURITY, 0, len(value), 96, 0, DACL) + file + value


class LongLists(Attack):
    """Access lists as long as a file system keeps them."""

    #: One attribute of 64 KiB holds 1,500 entries; ext4 keeps a page.
    file_system, entries, children = "xfs", 1500, 10_000
    share = "hide_unreadable = true"

    def prepare(self, data):
        folder = data / "listed"
        folder.mkdir(exist_ok=True)
        for number in range(self.children):
            (folder / f"child-{number:05}").touch()

    def lengthen(self, client, data):
        """Gives the folder and its children long lists: the first two through the server."""
        value = descriptor(self.entries)
        for name, options in (("listed", DIRECTORY), (r"listed\child-00000", 0)):
            file = client.open(name, access=ALL, options=options, disposition=OPEN)
            status, _ = client.call(SET_INFO, set_list(file, value), charge=1 + len(value) // 65536)
            assert status == 0, hex(status)
            client.call(CLOSE, close(file))
        kept = os.getxattr(data / "listed" / "child-00000", "security.NTACL")
        for child in (data / "listed").iterdir():
            os.setxattr(child, "security.NTACL", kept)


class LongListings(LongLists):
    """Listings of such children, of which each is asked for its list."""

    name = "acl-list"
    text = "QUERY_DIRECTORY of 10,000 files with 1,500 entries each, of which those that are not readable are hidden"

    def run(self, clients, end):
        seconds = end - time.time()
        self.lengthen(clients[0], self.server.data)
        folders = {client: client.open("listed", access=LIST, options=DIRECTORY) for client in clients}

        def again(client, _):
            return QUERY_DIRECTORY, query_directory(folders[client], "*", flags=RESTART), 1

        return f"{keep_busy(clients, time.time() + seconds, again)} answers"


class LongChecks(LongLists):
    """Files made and removed where each inherits such a list."""

    name = "acl-make"
    text = "CREATE in a folder with 1,500 entries that are inherited, and DELETE_ON_CLOSE"

    def run(self, clients, end):
        seconds, names, opened = end - time.time(), itertools.count(), {}
        self.lengthen(clients[0], self.server.data)

        def again(client, number):
            if client in opened:
                return CLOSE, close(opened.pop(client)), 1
            name = rf"listed\made-{next(names)}"
            return CREATE, create(name, access=ALL, disposition=MAKE, options=DELETE_ON_CLOSE), 1

        def note(client, status):
            if status == 0 and len(client.last) > 140:
                opened[client] = client.last[128:144]

        return f"{keep_busy(clients, time.time() + seconds, again, note)} answers"


class LongSettings(LongLists):
    """Such a list, set again and again."""

    name = "acl-set"
    text = "SET_INFO of an access list of 1,500 entries on one folder, one request at a time on each connection"

    def run(self, clients, end):
        value = descriptor(self.entries)
        folders = {client: client.open("listed", access=ALL, options=DIRECTORY) for client in clients}

        def again(client, _):
            return SET_INFO, set_list(folders[client], value), 1

        return f"{keep_busy(clients, end, again)} answers"


class Patterns(Searches):
    """Names that are compared with long patterns of the configuration, and of the request."""

    name = "patterns"
    text = (
        "QUERY_DIRECTORY of 20,000 names of 200 letters with a pattern of 100 asterisks, where 20 patterns with three "
        "are vetoed and 20 hidden"
    )
    files, count, connections = 0, 20_000, Attack.connections
    pattern = "*a" * 100 + "b"
    share = "veto = [{0}]\nhide_files = [{0}]".format(", ".join(f'"*aa*secret{number}*z"' for number in range(20)))

    def prepare(self, data):
        folder = data / "many"
        folder.mkdir(exist_ok=True)
        for number in range(self.count):
            (folder / ("a" * 194 + f"{number:06}")).touch()


class VetoedNames(Patterns):
    """CREATE of names that are compared so, one after the other."""

    name = "vetoed-names"
    text = "CREATE of paths of 19 components of 200 letters, each of which is compared with 40 patterns"

    def run(self, clients, end):
        path = "\\".join(["a" * 200] * 19)

        def again(client, _):
            return CREATE, create(path, access=READ_DATA, disposition=OPEN), 1

        return f"{keep_busy(clients, end, again)} answers"


class Complaints(Attack):
    """Requests that are refused, of which each is worth a line in a log."""

    name = "complaints"
    text = "refused CREATEs on a read-only share that records all of them in the audit log, 16 at a time"
    share = 'read_only = true\naudit = ["open", "create", "write", "rename", "delete", "acl", "attributes"]'
    limits = '[audit]\nfile = "STATE/audit.log"'

    def run(self, clients, end):
        def again(client, number):
            for further in range(15):
                client.queue(CREATE, create(f"refused-{number}-{further}", access=ALL, disposition=MAKE))
            return CREATE, create("x" * 255, access=ALL, disposition=MAKE), 1

        return f"{16 * keep_busy(clients, end, again)} answers"


ATTACKS = [LongListings(), LongChecks(), LongSettings(), Patterns(), VetoedNames(), Complaints()]
