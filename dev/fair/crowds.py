"""Attacks by numbers: many leases, opens and locks of one file, many watched folders, long compounds, and answers that
nobody reads."""

import itertools
import os
import struct
import time

from client import (
    CHANGE_NOTIFY,
    CLOSE,
    CREATE,
    ECHO,
    LOCK,
    OPLOCK_BREAK,
    QUERY_INFO,
    READ,
    SET_INFO,
    TREE_DISCONNECT,
    Client,
    charge,
    close,
    create,
    lease,
    lock,
    notify,
    query_info,
    read,
    readable,
    set_info,
    status_name,
)

from attacks import DIRECTORY, LIST, Attack, keep_busy

READ_DATA, ALL, READ_ATTRIBUTES = 0x120089, 0x1F01FF, 0x80
OPEN, OPEN_OR_MAKE = 1, 3
RELATED = 4
END_OF_FILE = 20
READ_AND_HANDLE = 3


def many(clients, bodies, command=CREATE, each=64):
    """Makes requests with several in flight on each connection, and returns the messages of success for each client."""
    done, refused = {client: [] for client in clients}, {}
    turns = itertools.cycle(clients)
    waiting = []

    def settle():
        for client, message_id in waiting:
            status, message = client.wait(message_id)
            if status:
                refused[status_name(status)] = refused.get(status_name(status), 0) + 1
            else:
                done[client].append(message)
        waiting.clear()

    for body in bodies:
        client = next(turns)
        waiting.append((client, client.queue(command, body)))
        if len(waiting) >= each * len(clients):
            for client in clients:
                client.flush()
            settle()
    for client in clients:
        client.flush()
    settle()
    return done, refused


class Leases(Attack):
    """Leases of one file that one request breaks."""

    name, count = "lease-breaks", 12_000
    text = "12,000 leases of one file, broken by a change of its size and acknowledged one after the other"
    seconds = 8

    def run(self, clients, end):
        seconds = end - time.time()
        keys = [os.urandom(16) for _ in range(self.count)]
        bodies = (create("leased", access=READ_DATA, oplock=0xFF, contexts=lease(key, READ_AND_HANDLE)) for key in keys)
        done, refused = many(clients, bodies)
        writer = Client(self.server.port, "ann")
        file = writer.open("leased", access=ALL)
        writer.send(SET_INFO, set_info(file, END_OF_FILE, struct.pack("<Q", 1)))
        end, answered = time.time() + seconds, 0
        sockets = {client.socket: client for client in clients}
        while time.time() < end:
            for client in [sockets[socket] for socket in readable(sockets, 0.2)]:
                client.pump()
                for broken in client.breaks[:64]:
                    key = broken[64 + 8 : 64 + 24]
                    body = struct.pack("<HHI16sIQ", 36, 0, 0, key, 0, 0)
                    client.queue(OPLOCK_BREAK, body)
                    answered += 1
                del client.breaks[:64]
                client.flush()
                client.answers.clear()
        writer.close()
        return f"{sum(map(len, done.values()))} leases, refused: {refused}, {answered} acknowledged"


class Opens(Attack):
    """Opens of one file, and the end of the tree connects that they are in."""

    name, count = "opens-of-one", 12_000
    text = "12,000 opens of one file, which end by TREE_DISCONNECT of 250 each"
    seconds = 8

    def run(self, clients, end):
        seconds = end - time.time()
        bodies = (create("crowded", access=READ_DATA) for _ in range(self.count))
        done, refused = many(clients, bodies, each=16)
        asked = [client.send(TREE_DISCONNECT, struct.pack("<HH", 4, 0)) for client in clients]
        for client, message_id in zip(clients, asked, strict=True):
            client.wait(message_id, timeout=120)
        time.sleep(max(0, min(seconds, end - time.time())))
        return f"{sum(map(len, done.values()))} opens, refused: {refused}"


class Promises(Attack):
    """Leases beside Opens that cache nothing, so that each request for a lease looks at all of them."""

    name, count = "lease-crowd", 6_000
    text = "CREATE with a lease in a file that has 6,000 opens for attributes and 6,000 leases, on each connection"

    def run(self, clients, end):
        seconds = end - time.time()
        stat = {"access": READ_ATTRIBUTES, "disposition": OPEN_OR_MAKE}
        many(clients, (create("crowded", **stat) for _ in range(self.count)))

        def leased():
            return create("crowded", oplock=0xFF, contexts=lease(os.urandom(16), READ_AND_HANDLE), **stat)

        done, refused = many(clients, (leased() for _ in range(self.count)))
        opened = {}

        def again(client, _):
            if client in opened:
                return CLOSE, close(opened.pop(client)), 1
            return CREATE, leased(), 1

        def note(client, status):
            if status == 0 and len(client.last) > 140:
                opened[client] = client.last[128:144]

        answers = keep_busy(clients, time.time() + seconds, again, note)
        return f"{sum(map(len, done.values()))} leases, refused: {refused}, {answers} answers"


class ManyLocks(Attack):
    """Locks of one file, many in each request."""

    name, count = "locks-of-one", 100_000
    text = (
        "LOCK and unlock of 64 ranges at a time in a file with 100,000 locks, one request at a time on each connection"
    )

    def run(self, clients, end):
        seconds = end - time.time()
        files = {client: client.open("locked", access=ALL) for client in clients}
        each, numbers = self.count // len(clients), {client: at for at, client in enumerate(clients)}
        for at, client in enumerate(clients):
            for first in range(0, each, 500):
                ranges = [((at * each + first + number) * 4, 1, 0x12) for number in range(min(500, each - first))]
                client.call(LOCK, lock(files[client], ranges))
        base = self.count * 4

        def again(client, number):
            at = numbers[client]
            flags = 4 if number % 2 else 0x12
            ranges = [(base + (at * 64 + which) * 4, 1, flags) for which in range(64)]
            return LOCK, lock(files[client], ranges), 1

        return f"{keep_busy(clients, time.time() + seconds, again)} answers"


class Watched(Attack):
    """Watched folders, as many as the server gives."""

    name, count, keeps = "watched", 65_536, False
    text = "CHANGE_NOTIFY for trees with 65,536 folders in all, while bob waits for a change"
    seconds = 10

    def prepare(self, data):
        top = data / "trees"
        for tree in range(16):
            for number in range(self.count // 16 // 64):
                for leaf in range(64):
                    folder = top / f"t{tree}" / f"d{number}" / f"l{leaf}"
                    if not folder.is_dir():
                        folder.mkdir(parents=True)

    def run(self, clients, end):
        for at, client in enumerate(clients):
            folder = client.open(rf"trees\t{at % 16}", access=LIST, options=DIRECTORY, disposition=OPEN)
            client.send(CHANGE_NOTIFY, notify(folder, is_tree=True))
        time.sleep(3)
        bob = Client(self.server.port, "bob")
        bob.open("bobs", access=LIST, options=DIRECTORY)
        folder = bob.open("bobs", access=LIST, options=DIRECTORY)
        began = time.time()
        waits = bob.send(CHANGE_NOTIFY, notify(folder))
        bob.call(ECHO, struct.pack("<HH", 4, 0))
        (self.server.data / "bobs" / f"made-{time.time()}").touch()
        try:
            status, _ = bob.wait(waits, timeout=10)
            said = status_name(status)
        except TimeoutError:
            said = "nothing"
            self.missed.append("bob hears nothing of a change that a program of the host makes")
        took = time.time() - began
        bob.close()
        time.sleep(max(0, end - time.time()))
        return f"bob's change: {said} after {took * 1000:.0f} ms"


class Compounds(Attack):
    """Compounds of related requests, with the longest paths."""

    name = "compounds"
    text = (
        "compounds of 64 requests, a CREATE of a path of 255 components and 63 related QUERY_INFO, on each connection"
    )
    path = "\\".join(["component"] * 255)

    def compound(self, client, elements):
        """Seals related requests as one message, and returns the MessageId of the last."""
        message = b""
        for at, (command, body) in enumerate(elements):
            body += bytes(-(64 + len(body)) % 8)
            following = 64 + len(body) if at + 1 < len(elements) else 0
            flags = RELATED if at else 0
            message += client.header(command, client.message_id, flags=flags, following=following) + body
            client.message_id += 1
        client.queued += client.sealed(message)
        client.flush()
        return client.message_id - 1

    def run(self, clients, end):
        same = b"\xff" * 16
        opened = create(self.path, access=READ_ATTRIBUTES, disposition=OPEN)
        elements = [(CREATE, opened)] + [(QUERY_INFO, query_info(same, 18, 4096))] * 63
        root = (
            [(CREATE, create("", access=READ_ATTRIBUTES, options=DIRECTORY))] + elements[1:63] + [(CLOSE, close(same))]
        )
        waiting = {client: self.compound(client, elements) for client in clients}
        answered, sockets = 0, {client.socket: client for client in clients}
        while time.time() < end:
            for client in [sockets[socket] for socket in readable(sockets, 0.2)]:
                client.pump()
                if waiting[client] in client.answers:
                    answered += 1
                    client.answers.clear()
                    waiting[client] = self.compound(client, root if answered % 2 else elements)
        return f"{answered} compounds"


class SlowReaders(Attack):
    """Answers that nobody reads."""

    name = "unread"
    text = "READs for all credits on each connection, whose answers nobody reads"

    def prepare(self, data):
        (data / "large.bin").write_bytes(bytes(32 << 20))

    def run(self, clients, end):
        sent = 0
        for client in clients:
            file = client.open("large.bin", access=READ_DATA, disposition=OPEN)
            client.call(ECHO, struct.pack("<HH", 4, 0))
            client.socket.setblocking(False)
            try:
                while client.credits > charge(1 << 20) and sent < 1_000_000:
                    client.queue(READ, read(file, 0, 1 << 20), charge=charge(1 << 20), credits=1)
                    sent += 1
                client.socket.sendall(client.queued)
            except BlockingIOError:
                pass
        time.sleep(max(0, end - time.time()))
        return f"{sent} READs of 1 MiB"


ATTACKS = [Leases(), Opens(), Promises(), ManyLocks(), Watched(), Compounds(), SlowReaders()]
