"""Attacks that make work of other kinds than listings, or that hold what the server has for all: long reads, pipes,
tokens of copies, recycle bins, audit logs, trees that are renamed, watches."""

import itertools
import shutil
import struct
import time

from client import (
    CHANGE_NOTIFY,
    CLOSE,
    CREATE,
    IOCTL,
    READ,
    SET_INFO,
    TREE_CONNECT,
    charge,
    close,
    create,
    ioctl,
    notify,
    read,
    rename,
    status_name,
    tree_connect,
)

from attacks import DIRECTORY, LIST, Attack, keep_busy

DELETE, WRITE_ATTRIBUTES, DELETE_ON_CLOSE = 0x10000, 0x100, 0x1000
OPEN, MAKE, OPEN_OR_MAKE = 1, 2, 3
OFFLOAD_READ, PIPE_TRANSCEIVE, RESILIENCY = 0x94264, 0x11C017, 0x1401D4
PARTS = 8 << 20


class LongReads(Attack):
    """The longest requests that there are: sealed answers of 8 MiB."""

    name, text = "read", "READ of 8 MiB of a file in the page cache, sealed, one request at a time on each connection"

    def prepare(self, data):
        (data / "large.bin").write_bytes(bytes(4 * PARTS))

    def run(self, clients, end):
        files = {client: client.open("large.bin", access=0x120089, disposition=OPEN) for client in clients}

        def again(client, number):
            return READ, read(files[client], number % 4 * PARTS, PARTS), charge(PARTS)

        return f"{keep_busy(clients, end, again)} answers"


class Churn(Attack):
    """Files that are made and removed."""

    name, text = "make-remove", "CREATE with DELETE_ON_CLOSE and CLOSE, one request at a time on each connection"

    def run(self, clients, end):
        opened, names = {}, itertools.count()

        def again(client, number):
            if number % 2 == 0:
                name = f"churn-{next(names)}"
                return CREATE, create(name, access=DELETE, disposition=MAKE, options=DELETE_ON_CLOSE), 1
            return (CLOSE, close(opened.pop(client)), 1) if client in opened else None

        def note(client, status):
            message = client.last
            if status == 0 and len(message) > 140:
                opened[client] = message[128:144]

        return f"{keep_busy(clients, end, again, note)} answers"


class Bins(Churn):
    """Files that go to a recycle bin, which has 100,000 already."""

    name, share = "bin", "recycle = true"
    text = "files made and deleted, where a recycle bin has 100,000 files already"

    def prepare(self, data):
        folder = data / ".recycle" / "ann"
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(100_000):
            (folder / f"churn-{number}").touch()


class Records(Churn):
    """Each operation in the audit log."""

    name, text = "audit", "files made and deleted in a share that records all of it in the audit log"
    share = 'audit = ["open", "create", "write", "rename", "delete", "acl", "attributes"]'

    limits = '[audit]\nfile = "STATE/audit.log"'


class Trees(Attack):
    """A deep tree that gets another name again and again."""

    name, text = "rename", "a tree of 2,000 folders that were opened, renamed back and forth on each connection"

    def prepare(self, data):
        for earlier in data.glob("tree-*"):
            shutil.rmtree(earlier)

    def run(self, clients, end):
        handles, answers, numbers = {}, {}, {client: at for at, client in enumerate(clients)}
        for client, at in numbers.items():
            path = f"tree-{at}"
            for number in range(2_000 // len(clients)):
                client.call(CLOSE, close(client.open(path, access=LIST, options=DIRECTORY)))
                path = f"{path}\\d{number}" if number % 40 else f"tree-{at}\\d{number}"
            handles[client] = client.open(f"tree-{at}", access=LIST | DELETE, options=DIRECTORY, disposition=OPEN)

        def again(client, number):
            return SET_INFO, rename(handles[client], f"tree-{numbers[client]}-{number % 2}"), 1

        def note(_, status):
            answers[status] = answers.get(status, 0) + 1

        keep_busy(clients, end, again, note)
        return ", ".join(f"{count} {status_name(status)}" for status, count in answers.items())


class Watches(Attack):
    """Trees within trees that are watched: each directory is one of many trees."""

    name, descriptors = "watches", 8000
    text = "CHANGE_NOTIFY for 60 trees, each within the one before, with 8,000 folders in the innermost one"
    depth, below = 60, 8000

    def prepare(self, data):
        for number in range(self.below):
            (data / "/".join(["d"] * self.depth) / f"f{number}").mkdir(parents=True, exist_ok=True)

    def run(self, clients, end):
        watched = 0
        for depth in range(1, self.depth + 1):
            client = clients[depth % len(clients)]
            folder = client.open("\\".join(["d"] * depth), access=LIST, options=DIRECTORY, disposition=OPEN)
            client.send(CHANGE_NOTIFY, notify(folder, is_tree=True))
            watched += 1
        time.sleep(max(0, end - time.time()))
        for client in clients:
            client.pump()
        return f"{watched} watches, {sum(len(client.pending) for client in clients)} wait"


class Tokens(Attack):
    """Files that are closed and that tokens of copies keep open."""

    name, descriptors = "tokens", 4000
    text = "tokens of offloaded copies, 64 of each connection, of files that are closed; 4,000 descriptors"
    files_made = 128 * 64

    def prepare(self, data):
        for number in range(self.files_made):
            (data / f"t{number}").write_bytes(bytes(1024))

    def run(self, clients, end):
        state, statuses, numbers = {}, {}, {client: at for at, client in enumerate(clients)}

        def again(client, number):
            at, step = divmod(number, 3)
            if at >= 64:
                return None
            if step == 0:
                name = f"t{(numbers[client] * 64 + at) % self.files_made}"
                return CREATE, create(name, access=0x120089, disposition=OPEN), 1
            if step == 1:
                state[client] = client.last[128:144]
                data = struct.pack("<IIIIQQ", 32, 0, 300_000, 0, 0, 1024)
                return IOCTL, ioctl(state[client], OFFLOAD_READ, data), 1
            return CLOSE, close(state[client]), 1

        def note(client, status):
            statuses[status] = statuses.get(status, 0) + 1

        keep_busy(clients, end, again, note)
        time.sleep(max(0, end - time.time()))
        return f"{ {status_name(status): count for status, count in statuses.items()} }"


class Resilient(Attack):
    """Handles that stay when their connections are lost."""

    name, keeps = "resilient", True
    text = "handles with resiliency of 5 minutes (FSCTL_LMR_REQUEST_RESILIENCY), 1,000 of each connection, which stay"

    def run(self, clients, end):
        kept, refused, numbers = [], {}, {client: at for at, client in enumerate(clients)}
        over = set()

        def again(client, number):
            # A client that was refused once asks no more.
            if client in over:
                return None
            if number % 2 == 0:
                name = f"kept-{numbers[client]}-{number}"
                return (CREATE, create(name, access=0x120089), 1) if number < 2000 else None
            return IOCTL, ioctl(client.last[128:144], RESILIENCY, struct.pack("<II", 300_000, 0)), 1

        def note(client, status):
            kept.append(1) if status == 0 else refused.update({status: refused.get(status, 0) + 1})
            if status:
                over.add(client)

        keep_busy(clients, end + 5, again, note)
        return f"{len(kept) // 2} handles, {refused}"


def bind(interface, version):
    """A PDU that binds an interface, C706 12.6.4.3."""
    ndr = bytes.fromhex("045d888aeb1cc9119fe808002b10486002000000")
    context = struct.pack("<HBB", 0, 1, 0) + interface + struct.pack("<HH", version, 0) + ndr
    body = struct.pack("<HHIBBH", 4280, 4280, 0, 1, 0, 0) + context
    return struct.pack("<BBBBIHHI", 5, 0, 11, 3, 0x10, 16 + len(body), 0, 1) + body


def call(number, stub, call_id=2):
    """A request in as many fragments as it needs, C706 12.6.4.9."""
    parts = [stub[at : at + 4096] for at in range(0, len(stub), 4096)] or [b""]
    fragments = b""
    for at, part in enumerate(parts):
        flags = (at == 0) | (at == len(parts) - 1) << 1
        body = struct.pack("<IHH", len(part), 0, number) + part
        fragments += struct.pack("<BBBBIHHI", 5, 0, 0, flags, 0x10, 16 + len(body), 0, call_id) + body
    return fragments


SRVSVC = bytes.fromhex("c84f324b7016d30112785a47bf6ee188")
LSARPC = bytes.fromhex("785734123412cdabef000123456789ab")
SAMR = bytes.fromhex("785734123412cdabef000123456789ac")
#: NetrShareEnum, level 1, MS-SRVS 3.1.4.8.
SHARES = struct.pack("<IIIIIIII", 0, 1, 1, 0x20000, 0, 0, 0xFFFFFFFF, 0)


def names(count):
    """The stub of LsarLookupNames with `count` names that nobody has, behind the policy handle."""
    head = struct.pack("<II", count, count)
    strings = [f"nobody{number:06}".encode("utf-16-le") for number in range(count)]
    entries = b"".join(struct.pack("<HHI", len(name), len(name), 0x20000 + at) for at, name in enumerate(strings))
    texts = b"".join(struct.pack("<III", len(name) // 2, 0, len(name) // 2) + name for name in strings)
    return head + entries + texts + struct.pack("<IIHHI", 0, 0, 1, 0, 0)


class Pipes(Attack):
    """Calls that list shares or look up names, over pipes."""

    name, text = "pipes", "NetrShareEnum, or LsarLookupNames of 1,000 names, one call at a time on each connection"

    def run(self, clients, end):
        calls, statuses = {}, {}
        for at, client in enumerate(clients):
            _, message = client.call(TREE_CONNECT, tree_connect(r"\\127.0.0.1\IPC$"), tree_id=0)
            client.tree_id = struct.unpack_from("<I", message, 36)[0]
            kind = at % 2 if len(clients) > 1 else 0
            interface, version, pipe = [(SRVSVC, 3, "srvsvc"), (LSARPC, 0, "lsarpc")][kind]
            file = client.open(pipe, access=0x12019F, disposition=OPEN)
            status, message = client.call(IOCTL, ioctl(file, PIPE_TRANSCEIVE, bind(interface, version)))
            assert status == 0, status_name(status)
            if kind == 0:
                calls[client] = file, call(15, SHARES)
            else:
                opened = call(
                    44, struct.pack("<I", 0) + struct.pack("<IIIIII", 24, 0, 0, 0, 0, 0) + struct.pack("<I", 0x801)
                )
                status, message = client.call(IOCTL, ioctl(file, PIPE_TRANSCEIVE, opened))
                stub = message[64 + 48 :][24:]
                handle = stub[:20]
                calls[client] = file, call(14, handle + names(1000))

        def again(client, _):
            file, request = calls[client]
            return IOCTL, ioctl(file, PIPE_TRANSCEIVE, request, 65536), charge(65536)

        def note(client, status):
            statuses[status_name(status)] = statuses.get(status_name(status), 0) + 1

        return f"{keep_busy(clients, end, again, note)} answers, {statuses}"


ATTACKS = [LongReads(), Churn(), Bins(), Records(), Trees(), Watches(), Tokens(), Resilient(), Pipes()]
