"""Attacks by the parts of a file: extended attributes, streams, extents, snapshots, and copies on the server."""

import struct
import time

from client import (
    CLOSE,
    CREATE,
    IOCTL,
    QUERY_INFO,
    READ,
    SET_INFO,
    WRITE,
    charge,
    close,
    create,
    ioctl,
    query_info,
    read,
    set_info,
    status_name,
    write,
)
from slow_calls import Snapshots

from attacks import DIRECTORY, LIST, Attack, keep_busy

READ_DATA, ALL = 0x120089, 0x1F01FF
OPEN, OPEN_OR_MAKE, RESTART = 1, 3, 1
FULL_EA, END_OF_FILE, STREAMS = 15, 20, 22
SPARSE, ZERO, RANGES, SNAPSHOTS = 0x900C4, 0x980C8, 0x940CF, 0x144064
RESUME_KEY, COPY, DUPLICATE, OFFLOAD_READ, OFFLOAD_WRITE = 0x140078, 0x1440F2, 0x98344, 0x94264, 0x98268
MIB = 1 << 20


class OneRequest(Attack):
    """One request about a file, again and again."""

    path = "probed"
    access, disposition, options = ALL, OPEN_OR_MAKE, 0

    def ready(self, clients):
        """Prepares the file through the server."""

    def body(self, file, number):
        """Returns command, body and credit charge of a request."""
        raise NotImplementedError

    def run(self, clients, end):
        seconds, statuses = end - time.time(), {}
        self.ready(clients)
        how = {"access": self.access, "disposition": self.disposition, "options": self.options}
        files = {client: client.open(self.path, **how) for client in clients}

        def again(client, number):
            return self.body(files[client], number)

        def note(_, status):
            statuses[status_name(status)] = statuses.get(status_name(status), 0) + 1

        return f"{keep_busy(clients, time.time() + seconds, again, note)} answers, {statuses}"


def attributes(first, count, length):
    """FileFullEaInformation, MS-FSCC 2.4.16."""
    entries = b""
    for number in range(count):
        name, value = f"EA{first + number:05}".encode(), bytes(length)
        entry = struct.pack("<BBH", 0, len(name), len(value)) + name + b"\0" + value
        entry += bytes(-(4 + len(entry)) % 4)
        entries += struct.pack("<I", 4 + len(entry) if number + 1 < count else 0) + entry
    return entries


class Attributes(OneRequest):
    """Extended attributes, as many as a file has room for."""

    name, file_system = "eas-read", "xfs"
    text = "QUERY_INFO of 3,000 extended attributes of a file, one request at a time on each connection"

    def ready(self, clients):
        file = clients[0].open(self.path, access=ALL)
        for first in range(0, 3000, 100):
            data = attributes(first, 100, 8)
            clients[0].call(SET_INFO, set_info(file, FULL_EA, data))
        clients[0].call(CLOSE, close(file))

    def body(self, file, _):
        return QUERY_INFO, query_info(file, FULL_EA, flags=RESTART), 1


class AttributesSet(OneRequest):
    """Extended attributes, set again."""

    name, file_system = "eas-set", "xfs"
    text = "SET_INFO of 2,000 extended attributes, one request at a time on each connection"

    def run(self, clients, end):
        self.data = attributes(0, 2000, 8)
        return super().run(clients, end)

    def body(self, file, _):
        return SET_INFO, set_info(file, FULL_EA, self.data), 1


class Streams(OneRequest):
    """Files with many streams."""

    #: The names of all of them fit the list of attributes, 64 KiB.
    name, file_system, count = "streams", "xfs", 2048
    text = "QUERY_INFO of 2,048 streams of a file, and CREATE and CLOSE of one of them, on each connection"

    def ready(self, clients):
        each = self.count // len(clients)
        numbers = {client: iter(range(at * each, (at + 1) * each)) for at, client in enumerate(clients)}
        opened = {}

        def again(client, _):
            if client in opened:
                return CLOSE, close(opened.pop(client)), 1
            number = next(numbers[client], None)
            return None if number is None else (CREATE, create(f"{self.path}:s{number}"), 1)

        def note(client, status):
            if status == 0 and len(client.last) > 140:
                opened[client] = client.last[128:144]

        keep_busy(clients, time.time() + 60, again, note)

    def body(self, file, number):
        return QUERY_INFO, query_info(file, STREAMS, MIB // 2), charge(MIB // 2)


class StreamReads(OneRequest):
    """Data of a stream that does not fit an attribute, which threads read."""

    name, text = "stream-reads", "READ of 1 MiB of a named stream, one request at a time on each connection"
    path = "probed:data"

    def ready(self, clients):
        file = clients[0].open(self.path, access=ALL)
        clients[0].call(WRITE, write(file, 0, bytes(MIB)), charge=charge(MIB))
        clients[0].call(CLOSE, close(file))

    def body(self, file, _):
        return READ, read(file, 0, MIB), charge(MIB)


class Extents(OneRequest):
    """Ranges of a file with many extents."""

    name, text = "ranges", "FSCTL_QUERY_ALLOCATED_RANGES of a file of 300,000 extents, on each connection"
    path, count, output = "extents", 300_000, MIB

    def prepare(self, data):
        path = data / self.path
        if path.exists() and path.stat().st_blocks * 512 >= self.count * 4096:
            return
        with path.open("wb", buffering=0) as file:
            for extent in range(self.count):
                file.seek(extent * 8192)
                file.write(b"x")

    def body(self, file, number):
        data = struct.pack("<QQ", 0, 1 << 40)
        return IOCTL, ioctl(file, RANGES, data, self.output), charge(self.output)


class Zeros(OneRequest):
    """Huge ranges that become zeros."""

    name, text = "zeros", "FSCTL_SET_ZERO_DATA of 1 TiB of sparse files, and a byte in between, on each connection"

    def ready(self, clients):
        file = clients[0].open(self.path, access=ALL)
        clients[0].call(IOCTL, ioctl(file, SPARSE))
        clients[0].call(SET_INFO, set_info(file, END_OF_FILE, struct.pack("<Q", 1 << 40)))

    def body(self, file, number):
        return IOCTL, ioctl(file, ZERO, struct.pack("<QQ", number % 2 * 4096, 1 << 40)), 1


class ManySnapshots(Snapshots):
    """Lists of many snapshots."""

    name, count = "snapshot-lists", 5000
    text = "FSCTL_SRV_ENUMERATE_SNAPSHOTS of 5,000 snapshots, one request at a time on each connection"

    def run(self, clients, end):
        folders = {client: client.open("", access=LIST, options=DIRECTORY) for client in clients}

        def again(client, _):
            return IOCTL, ioctl(folders[client], SNAPSHOTS, b"", 4 * MIB), charge(4 * MIB)

        return f"{keep_busy(clients, end, again)} answers"


class Copies(OneRequest):
    """Copies on the server, as long as they may be."""

    name, text = "copies", "SRV_COPYCHUNK of 16 MiB, one request at a time on each connection"
    path = "copied"

    def prepare(self, data):
        (data / "copied").write_bytes(bytes(16 * MIB))

    def run(self, clients, end):
        keys, targets, statuses = {}, {}, {}
        for at, client in enumerate(clients):
            source = client.open("copied", access=READ_DATA, disposition=OPEN)
            _, message = client.call(IOCTL, ioctl(source, RESUME_KEY))
            keys[client] = message[112:136]
            targets[client] = client.open(f"copy-{at % 16}", access=ALL)
        chunks = b"".join(struct.pack("<QQII", at * MIB, at * MIB, MIB, 0) for at in range(16))

        def again(client, _):
            data = keys[client] + struct.pack("<II", 16, 0) + chunks
            return IOCTL, ioctl(targets[client], COPY, data, 12), 1

        def note(_, status):
            statuses[status_name(status)] = statuses.get(status_name(status), 0) + 1

        return f"{keep_busy(clients, end, again, note)} answers, {statuses}"


class Offloads(Copies):
    """Copies by tokens."""

    name, text = "offloads", "FSCTL_OFFLOAD_WRITE of 16 MiB, one request at a time on each connection"

    def run(self, clients, end):
        tokens, targets, statuses = {}, {}, {}
        for at, client in enumerate(clients):
            source = client.open("copied", access=READ_DATA, disposition=OPEN)
            data = struct.pack("<IIIIQQ", 32, 0, 300_000, 0, 0, 16 * MIB)
            status, message = client.call(IOCTL, ioctl(source, OFFLOAD_READ, data))
            assert status == 0, status_name(status)
            tokens[client] = message[112 + 16 : 112 + 16 + 512]
            targets[client] = client.open(f"copy-{at % 16}", access=ALL)
            client.call(SET_INFO, set_info(targets[client], END_OF_FILE, struct.pack("<Q", 16 * MIB)))

        def again(client, _):
            data = struct.pack("<IIQQQ", 544, 0, 0, 16 * MIB, 0) + tokens[client]
            return IOCTL, ioctl(targets[client], OFFLOAD_WRITE, data), 1

        def note(_, status):
            statuses[status_name(status)] = statuses.get(status_name(status), 0) + 1

        return f"{keep_busy(clients, end, again, note)} answers, {statuses}"


class Duplicates(OneRequest):
    """Clones of the extents of a file."""

    name, file_system, count = "clones", "xfs", 20_000
    text = "FSCTL_DUPLICATE_EXTENTS_TO_FILE of a file of 20,000 extents, one request at a time on each connection"

    def prepare(self, data):
        with (data / "cloned").open("wb", buffering=0) as file:
            for extent in range(self.count):
                file.seek(extent * 8192)
                file.write(b"x" * 4096)
            file.truncate(self.count * 8192)

    def run(self, clients, end):
        sources, targets, statuses = {}, {}, {}
        for at, client in enumerate(clients):
            sources[client] = client.open("cloned", access=READ_DATA, disposition=OPEN)
            targets[client] = client.open(f"clone-{at % 16}", access=ALL)
            client.call(IOCTL, ioctl(targets[client], SPARSE))
            client.call(SET_INFO, set_info(targets[client], END_OF_FILE, struct.pack("<Q", self.count * 8192)))

        def again(client, _):
            data = sources[client] + struct.pack("<QQQ", 0, 0, self.count * 8192)
            return IOCTL, ioctl(targets[client], DUPLICATE, data), 1

        def note(_, status):
            statuses[status_name(status)] = statuses.get(status_name(status), 0) + 1

        return f"{keep_busy(clients, end, again, note)} answers, {statuses}"


ATTACKS = [
    Attributes(),
    AttributesSet(),
    Streams(),
    StreamReads(),
    Extents(),
    Zeros(),
    ManySnapshots(),
    Copies(),
    Offloads(),
    Duplicates(),
]
