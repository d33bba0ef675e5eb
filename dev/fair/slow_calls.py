"""Attacks by requests whose system calls take the kernel long, for as long as their client has decided before."""

import os
import struct
import time

from client import (
    CLOSE,
    CREATE,
    ECHO,
    QUERY_DIRECTORY,
    SET_INFO,
    Client,
    close,
    context,
    create,
    query_directory,
    set_info,
    status_name,
)

from attacks import DIRECTORY, EACH, LIST, SOME, Attack, keep_busy

DELETE_ON_CLOSE = 0x1000
READ_DATA, ALL = 0x120089, 0x1F01FF
OPEN, OPEN_IF, OVERWRITE = 1, 3, 4
RESTART = 1
DISPOSITION, END_OF_FILE = 13, 20
#: Seconds from 1601 to 1970, the origin of a FILETIME.
EPOCH = 11_644_473_600


def fragment(file, extents):
    """Gives a file blocks with holes between them, and writes none of them."""
    for extent in range(extents):
        os.posix_fallocate(file, extent * 8192, 4096)
    os.fsync(file)


class Fragments(Attack):
    """Files with many extents, each block of which the file system frees by itself."""

    seconds, connections = 6, SOME
    #: Files, and extents of each.
    count, extents, file_system = 4, 100_000, "ext4"

    def prepare(self, data):
        for number in range(self.count):
            path = data / f"fragments-{number}"
            if path.exists() and path.stat().st_blocks * 512 >= self.extents * 4096:
                continue
            with path.open("wb", buffering=0) as file:
                fragment(file.fileno(), self.extents)

    def run(self, clients, end):
        opened, longest = [], 0.0
        for number, client in enumerate(clients):
            opened.append((client, client.open(self.path(number), access=ALL, disposition=OPEN)))
        began = time.time()
        waiting = [(client, self.ask(client, file)) for client, file in opened]
        for client, message_id in waiting:
            client.wait(message_id, timeout=300)
            longest = time.time() - began
        time.sleep(max(0, end - time.time()))
        return f"{len(waiting)} answers in {longest:.1f} s"

    def path(self, number):
        return f"fragments-{number % self.count}"

    def ask(self, client, file):
        """Sends the request for an open file, and returns its MessageId."""
        raise NotImplementedError


class Deletions(Fragments):
    """The deletion of such files."""

    name = "delete"
    text = "deletes four files of 100,000 extents at once, which each connection has open"

    def ask(self, client, file):
        client.call(SET_INFO, set_info(file, DISPOSITION, b"\1"))
        return client.send(CLOSE, close(file))


class Cuts(Fragments):
    """The truncation of such files."""

    name, connections = "cut", EACH
    text = "sets the end of four files of 100,000 extents to 0, on each connection"

    def ask(self, client, file):
        return client.send(SET_INFO, set_info(file, END_OF_FILE, struct.pack("<Q", 0)))


class Overwrites(Fragments):
    """CREATEs that overwrite such files, while bob makes streams in them."""

    name = "overwrite"
    text = "overwrites four files of 100,000 extents, on each connection, while bob makes a stream in one of them again"
    #: Seconds that bob's streams may wait for, as they are parts of the files that are overwritten.
    patience = 1

    def run(self, clients, end):
        bob = Client(self.server.port, "bob")
        waiting = []
        for number, client in enumerate(clients):
            body = create(self.path(number), access=READ_DATA, disposition=OVERWRITE)
            waiting.append((client, client.send(CREATE, body)))
        statuses, longest, made = {}, 0.0, 0
        while time.time() < end:
            began = time.time()
            status, message = bob.call(CREATE, create(f"{self.path(made)}:by-bob", access=ALL, disposition=OPEN_IF))
            if status == 0:
                bob.call(CLOSE, close(message[128:144]))
            longest, made = max(longest, time.time() - began), made + 1
            statuses[status_name(status)] = statuses.get(status_name(status), 0) + 1
            time.sleep(0.005)
        for client, message_id in waiting:
            status, _ = client.wait(message_id, timeout=300)
            statuses[f"ann: {status_name(status)}"] = statuses.get(f"ann: {status_name(status)}", 0) + 1
        bob.close()
        if longest > self.patience:
            self.missed.append(f"bob's stream waits {longest:.1f} s, {self.patience} are allowed")
        return f"{statuses}, {longest * 1000:.0f} ms for a stream at most"


class Snapshots(Attack):
    """Names in many snapshots in turn."""

    connections = EACH
    name, share = "snapshots", 'snapshots = ".snap/@GMT-%Y.%m.%d-%H.%M.%S"'
    text = "CREATE of names in 50 snapshots in turn, one request at a time on each connection"
    first, apart, count = 1_600_000_000, 3600, 50

    def prepare(self, data):
        for number in range(self.count):
            taken = time.gmtime(self.first + number * self.apart)
            folder = data / ".snap" / time.strftime("@GMT-%Y.%m.%d-%H.%M.%S", taken)
            folder.mkdir(parents=True, exist_ok=True)

    def run(self, clients, end):
        def again(_, number):
            seconds = self.first + number % self.count * self.apart + EPOCH
            then = context(b"TWrp", struct.pack("<Q", seconds * 10**7))
            return CREATE, create("none.txt", access=READ_DATA, disposition=OPEN, contexts=then), 1

        return f"{keep_busy(clients, end, again)} answers"


class Emptied(Attack):
    """A folder that once had many names, whose blocks the file system keeps."""

    name, connections = "emptied", EACH
    text = "QUERY_DIRECTORY of a folder that once had 200,000 names, one request at a time on each connection"
    once, size = 200_000, 4 << 20

    def prepare(self, data):
        folder = data / "emptied"
        folder.mkdir(exist_ok=True)
        if folder.stat().st_size >= self.size:
            return
        paths = [folder / f"a-rather-long-name-of-a-file-{number:06}.txt" for number in range(self.once)]
        for path in paths:
            path.touch()
        for path in paths:
            path.unlink()

    def run(self, clients, end):
        folders = {client: client.open("emptied", access=LIST, options=DIRECTORY) for client in clients}

        def again(client, _):
            return QUERY_DIRECTORY, query_directory(folders[client], flags=RESTART), 1

        return f"{keep_busy(clients, end, again)} answers"


class Spellings(Attack):
    """Names in another case, in a large folder that changes."""

    name, files, connections = "case", 200_000, EACH
    text = (
        "CREATE of names in another case in a folder of 200,000 names, in which each connection makes and deletes a "
        "file between two of them"
    )

    def run(self, clients, end):
        opened, own = {}, {client: number for number, client in enumerate(clients)}

        def again(client, number):
            if number % 2:
                file = opened.pop(client, None)
                return (CLOSE, close(file), 1) if file else (ECHO, struct.pack("<HH", 4, 0), 1)
            if number % 4:
                path = f"MANY\\FILE-{number * 7919 % self.files:06}.TXT"
                return CREATE, create(path, access=READ_DATA, disposition=OPEN), 1
            path = f"many\\temporary-{own[client]}-{number}"
            return CREATE, create(path, access=ALL, disposition=OPEN_IF, options=DELETE_ON_CLOSE), 1

        def note(client, status):
            (message,) = (message for _, message in client.answers.values())
            if not status and int.from_bytes(message[12:14], "little") == CREATE:
                opened[client] = message[128:144]

        return f"{keep_busy(clients, end, again, note)} answers"


ATTACKS = [Deletions(), Cuts(), Overwrites(), Snapshots(), Emptied(), Spellings()]
