"""A disk is shared with all who use it, whatever the server does. So some attacks are measured beside the same calls
of a program of the host: each row has what bob waits, what bob's durable writes take (open, write 4 KiB, flush, close),
and what the same durable writes take in a program of the host."""

import os
import struct
import subprocess
import sys
import time

import disks
from client import (
    CLOSE,
    CREATE,
    FLUSH,
    QUERY_DIRECTORY,
    SET_INFO,
    WRITE,
    Client,
    close,
    create,
    query_directory,
    rename,
    set_info,
    write,
)
from disks import DELETE_ON_CLOSE, MAKE
from server import HERE, Server, with_parent
from slow_calls import ALL, DISPOSITION, END_OF_FILE, OPEN, fragment

from attacks import DIRECTORY, LIST, Attack, keep_busy

#: Connections of an attack, and processes of the program that makes the same calls.
WORKERS = 16
SECONDS, SHORTEST = 3, 0.5
#: MS-SMB2 2.2.33, MS-ERREF 2.3.1.
RESTART_SCANS, NO_MORE_FILES = 1, 0x80000006
PROBES = ("bob", "bob-writes", "host-writes", "new")
HEAD = (
    "| file system | calls | made by | bob reads | bob writes and flushes | a program writes and syncs | newcomers "
    "| done |\n|---|---|---|---|---|---|---|---|"
)
SYSTEMS = {"ext4": "ext4", "xfs": "XFS", "btrfs": "Btrfs"}


class Calls(Attack):
    """Calls that a client makes by the server, and a program makes itself. Both count rounds: for a client, answers
    without a fault by how many of them a round has."""

    answers_of_round = 1

    def requests(self, clients):
        """Returns a function for `keep_busy`."""
        raise NotImplementedError

    def run(self, clients, end):
        self.good = 0
        keep_busy(clients, end, self.asked, self.note)
        return self.good // self.answers_of_round

    def note(self, _client, status):
        self.good += status == 0

    def make_ready(self, clients):
        """Opens the files for the calls."""
        self.asked = self.requests(clients)


class Fragments(Calls):
    """Files with many extents."""

    count, extents = WORKERS, 20_000

    def prepare(self, data):
        for number in range(self.count):
            file = os.open(data / f"fragments-{number:02}", os.O_WRONLY | os.O_CREAT)
            fragment(file, self.extents)
            os.close(file)

    def requests(self, clients):
        files = {}
        for number in range(self.count):
            client = clients[number % len(clients)]
            file = client.open(f"fragments-{number:02}", access=ALL, disposition=OPEN)
            files.setdefault(client, []).extend(self.about(file))
        return lambda client, number: files[client][number] if number < len(files[client]) else None


class Cuts(Fragments):
    """Their truncation."""

    name, text = "cut", f"the end of {WORKERS} files of 20,000 extents set to 0"

    def about(self, file):
        return [(SET_INFO, set_info(file, END_OF_FILE, struct.pack("<Q", 0)), 1)]


class Deletions(Fragments):
    """Their deletion."""

    name, text = "delete", f"{WORKERS} files of 20,000 extents deleted"
    answers_of_round = 2

    def about(self, file):
        return [(SET_INFO, set_info(file, DISPOSITION, b"\1"), 1), (CLOSE, close(file), 1)]


class Syncs(Calls):
    """Data written through to the disk."""

    name, text = "sync", "64 KiB written and flushed again and again"
    answers_of_round = 2

    def requests(self, clients):
        files = {client: client.open(f"synced-{number}", access=ALL) for number, client in enumerate(clients)}

        def again(client, number):
            return (FLUSH, close(files[client]), 1) if number % 2 else (WRITE, write(files[client], 0, bytes(65536)), 1)

        return again


class Listings(Calls):
    """A large folder, read again and again: a round ends with the answer that there are no more names."""

    name, text, count = "list", "a folder of 100,000 names listed again and again", 100_000

    def prepare(self, data):
        folder = data / "many"
        folder.mkdir()
        for number in range(self.count):
            os.close(os.open(folder / f"file-{number:06}", os.O_WRONLY | os.O_CREAT))

    def requests(self, clients):
        folders = {client: client.open("many", access=LIST, options=DIRECTORY) for client in clients}
        self.anew = set()

        def part(client, _):
            flags = RESTART_SCANS if client in self.anew else 0
            self.anew.discard(client)
            return QUERY_DIRECTORY, query_directory(folders[client], flags=flags), 1

        return part

    def note(self, client, status):
        if status == NO_MORE_FILES:
            self.good += 1
            self.anew.add(client)


class Names(Calls):
    """Names of a large folder that come, become others and go."""

    name, text, count = "names", "files made, renamed and deleted in a folder of 20,000", 20_000
    answers_of_round = 3

    def prepare(self, data):
        folder = data / "many"
        folder.mkdir()
        for number in range(self.count):
            os.close(os.open(folder / f"file-{number:05}", os.O_WRONLY | os.O_CREAT))

    def requests(self, clients):
        numbers, self.opened = {client: number for number, client in enumerate(clients)}, {}

        def again(client, number):
            name = f"many\\made-{numbers[client]}-{number // 3}"
            if number % 3 == 0:
                return CREATE, create(name, access=ALL, disposition=MAKE, options=DELETE_ON_CLOSE), 1
            if client not in self.opened:
                return None
            if number % 3 == 1:
                return SET_INFO, rename(self.opened[client], name + "-moved"), 1
            return CLOSE, close(self.opened.pop(client)), 1

        return again

    def note(self, client, status):
        super().note(client, status)
        if status == 0 and int.from_bytes(client.last[12:14], "little") == CREATE:
            self.opened[client] = client.last[128:144]


KINDS = (Cuts, Deletions, Syncs, Listings, Names)


def line(system, calls, maker, figures, done):
    cells = (str(figures[kind]) for kind in PROBES)
    return f"| {SYSTEMS[system]} | {calls} | {maker} | {' | '.join(cells)} | {done} |"


def by_host(kind, data):
    """Has a program of the host make the calls."""
    command = [sys.executable, HERE / "local_calls.py", kind, data, str(WORKERS), str(SECONDS)]
    return int(subprocess.run(command, check=True, capture_output=True, preexec_fn=with_parent()).stdout)


def measure(options, system):
    """Yields the lines of one file system."""
    for kind in KINDS:
        for is_host in (False, True):
            calls = kind()
            calls.file_system, calls.name = system, f"beside-{kind.name}"
            with disks.folder(options.dir, calls) as data:
                calls.prepare(data)
                yield from measure_in(data, options, calls, kind.name, is_host)


def measure_in(data, options, calls, kind, is_host):
    server = Server(options.server, options.dir / "server", options.port, data)
    try:
        server.start_probes(PROBES)
        time.sleep(1)
        if kind == KINDS[0].name and not is_host:
            yield line(calls.file_system, "none", "", server.rest(SECONDS), "")
        clients = [] if is_host else [Client(options.port, "ann") for _ in range(WORKERS)]
        if clients:
            calls.make_ready(clients)
        begin = time.time()
        done = by_host(kind, data) if is_host else calls.run(clients, begin + SECONDS)
        # Calls that are over at once have figures all the same, and the probes write theirs.
        end = max(time.time(), begin + SHORTEST)
        time.sleep(max(0, end - time.time()) + 0.5)
        figures = server.phase(begin, end)
        for client in clients:
            client.close()
        yield line(calls.file_system, kind, "a program of the host" if is_host else "ann, by SMB", figures, done)
    finally:
        server.stop()


def table(options):
    """Returns the lines of the table."""
    lines = [HEAD]
    print(HEAD, flush=True)
    for system in SYSTEMS:
        try:
            for measured in measure(options, system):
                print(measured, flush=True)
                lines.append(measured)
        except disks.Absent as absent:
            print(f"{system} is left out: {absent}", file=sys.stderr)
    return lines
