"""Attacks by what an organisation has many of: users with quotas, and groups of one user."""

import itertools
import os
import string
import struct

from client import CLOSE, CREATE, QUERY_INFO, close, create, query_info, status_name
from lists import READ_DATA, LongLists

from attacks import DIRECTORY, LIST, Attack, keep_busy

OPEN = 1
#: The kind of QUERY_INFO for quotas, and the bytes before its input: MS-SMB2 2.2.37.
QUOTAS, INPUT_OFFSET = 4, 64 + 40


def query_quotas(file, length=65536):
    """QUERY_INFO of the quotas of all users from the first one on, MS-SMB2 2.2.37.1."""
    asked = struct.pack("<BBHIII", 0, 1, 0, 0, 0, 0)
    fixed = struct.pack("<HBBIHHIII", 41, QUOTAS, 0, length, INPUT_OFFSET, 0, len(asked), 0, 0)
    return fixed + file + asked


class Quotas(Attack):
    """Lists of the quotas of many users, by one who may see them."""

    name, file_system, users = "quotas", "ext4-quotas", 10_000
    text = "QUERY_INFO of the quotas of 10,000 users by an administrator, one request at a time on each connection"
    settings = 'administrators = ["ann"]'

    def prepare(self, data):
        folder = data / "owned"
        folder.mkdir(exist_ok=True)
        for number in range(self.users):
            path = folder / f"of-{number:05}"
            path.write_bytes(b"x")
            os.chown(path, 1_000_000 + number, -1)

    def run(self, clients, end):
        folders = {client: client.open("", access=LIST, options=DIRECTORY) for client in clients}
        statuses = {}

        def note(_, status):
            statuses[status_name(status)] = statuses.get(status_name(status), 0) + 1

        answers = keep_busy(clients, end, lambda client, _: (QUERY_INFO, query_quotas(folders[client]), 1), note)
        return f"{answers} answers, {statuses}"


class ManyGroups(LongLists):
    """A user of a thousand groups, in whose token each entry of a long access list is looked for."""

    name, children = "groups", 1000
    text = "CREATE and QUERY_INFO of files with 1,500 entries, by a user of 1,000 groups who is in the last one only"
    #: Groups of ann, with names that are short enough for one line of the account file.
    groups = list(map("".join, itertools.product(string.ascii_lowercase + string.digits, repeat=2)))[:1000]
    share = ""

    def run(self, clients, end):
        self.lengthen(clients[0], self.server.data)
        opened, statuses = {}, {}

        def again(client, number):
            if client not in opened:
                path = rf"listed\child-{number % self.children:05}"
                return CREATE, create(path, access=READ_DATA, disposition=OPEN), 1
            if number % 3 == 1:
                return QUERY_INFO, query_info(opened[client], 18, 4096), 1
            return CLOSE, close(opened.pop(client)), 1

        def note(client, status):
            statuses[status_name(status)] = statuses.get(status_name(status), 0) + 1
            if status == 0 and int.from_bytes(client.last[12:14], "little") == CREATE:
                opened[client] = client.last[128:144]

        return f"{keep_busy(clients, end, again, note)} answers, {statuses}"


ATTACKS = [Quotas(), ManyGroups()]
