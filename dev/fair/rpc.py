"""Attacks by remote procedure calls: lookups of a thousand names, lists of accounts, shares, sessions and files."""

import struct

from client import CREATE, IOCTL, READ, TREE_CONNECT, charge, create, ioctl, read, status_name, tree_connect
from floods import LSARPC, PIPE_TRANSCEIVE, SAMR, SHARES, SRVSVC, bind, call, names

from attacks import Attack, keep_busy

OPEN = 1
MAXIMUM = 0x02000000
#: PFC_LAST_FRAG of C706 12.6.3.1.
LAST = 2
#: Bytes of the longest answer that is taken.
OUTPUT = 1 << 20
#: A pointer that is not null, and a context handle's length.
POINTER, HANDLE = 0x20000, 20


class Pipe:
    """An association with an interface, over a pipe of a client."""

    def __init__(self, client, name, interface, version):
        _, message = client.call(TREE_CONNECT, tree_connect(r"\\127.0.0.1\IPC$"), tree_id=0)
        self.client, self.tree_id = client, struct.unpack_from("<I", message, 36)[0]
        _, message = client.call(CREATE, create(name, disposition=OPEN), tree_id=self.tree_id)
        self.file_id = message[128:144]
        self.ask(bind(interface, version))

    def ask(self, request):
        """Returns the stub of the answer."""
        status, message = self.client.call(IOCTL, self.body(request), charge=charge(OUTPUT), tree_id=self.tree_id)
        if status:
            raise OSError(status_name(status))
        return message[64 + 48 :][24:]

    def body(self, request):
        return ioctl(self.file_id, PIPE_TRANSCEIVE, request, OUTPUT)


def sid(*parts):
    """A SID with the authority of NT, or that of Unix for 22."""
    authority, *numbers = parts
    return struct.pack(f"<BB6s{len(numbers)}I", 1, len(numbers), bytes(5) + bytes([authority]), *numbers)


def conformant(value):
    """A SID as NDR has it, with the count of its numbers ahead."""
    return struct.pack("<I", value[1]) + value


class Calls(Attack):
    """One kind of call, one at a time on each pipe."""

    pipe, interface, version = "", b"", 0

    def request(self, pipe):
        """Returns the call that is made again and again."""
        raise NotImplementedError

    def run(self, clients, end):
        pipes, calls, statuses = {}, {}, {}
        for client in clients:
            pipes[client] = Pipe(client, self.pipe, self.interface, self.version)
            calls[client] = self.request(pipes[client])
            client.tree_id = pipes[client].tree_id

        unread = set()

        def again(client, _):
            if client in unread:
                return READ, read(pipes[client].file_id, 0, 65536), 1
            return IOCTL, pipes[client].body(calls[client]), charge(OUTPUT)

        def note(client, status):
            statuses[status_name(status)] = statuses.get(status_name(status), 0) + 1
            head = 64 + (16 if int.from_bytes(client.last[12:14], "little") == READ else 48)
            # An answer comes in fragments, of which the last one says so.
            is_last = status or client.last[head + 3] & LAST
            (unread.discard if is_last else unread.add)(client)

        return f"{keep_busy(clients, end, again, note)} answers, {statuses}"


class OfLsa(Calls):
    """Calls on a policy handle."""

    pipe, interface = "lsarpc", LSARPC

    def policy(self, pipe):
        attributes = struct.pack("<IIIIII", 24, 0, 0, 0, 0, 0)
        return pipe.ask(call(44, struct.pack("<I", 0) + attributes + struct.pack("<I", 0x801)))[:HANDLE]


class Names(OfLsa):
    """Lookups of names."""

    name, text, accounts = (
        "lsa-names",
        "LsarLookupNames of 1,000 names that nobody has, where there are 20,000 accounts",
        20_000,
    )

    def request(self, pipe):
        return call(14, self.policy(pipe) + names(1000))


class Sids(OfLsa):
    """Lookups of SIDs for which the host is asked."""

    name, text = "lsa-sids", "LsarLookupSids of 1,000 SIDs of users of the host, which its name service does not know"

    def request(self, pipe):
        sids = [sid(22, 1, 3_000_000 + number) for number in range(1000)]
        head = struct.pack("<III", len(sids), POINTER, len(sids))
        pointers = struct.pack(f"<{len(sids)}I", *range(POINTER + 4, POINTER + 4 + 4 * len(sids), 4))
        texts = b"".join(map(conformant, sids))
        return call(15, self.policy(pipe) + head + pointers + texts + struct.pack("<IIHHI", 0, 0, 1, 0, 0))


class OfSamr(Calls):
    """Calls on the handle of the machine's accounts."""

    pipe, interface, version, accounts = "samr", SAMR, 1, 20_000
    settings = 'account_listing = "users"'

    def domain(self, pipe):
        server = pipe.ask(call(0, struct.pack("<II", 0, MAXIMUM)))[:HANDLE]
        text = "FAIR".encode("utf-16-le")
        head = struct.pack("<HHIIII", len(text), len(text), POINTER, len(text) // 2, 0, len(text) // 2)
        found = pipe.ask(call(5, server + head + text))
        count = found[9]
        machine = found[4 : 4 + 4 + 8 + 4 * count]
        return pipe.ask(call(7, server + struct.pack("<I", MAXIMUM) + machine))[:HANDLE]


class Accounts(OfSamr):
    """Lists of accounts."""

    name, text = "samr-accounts", "SamrEnumerateUsersInDomain, the first 1,000 of 20,000 accounts again and again"

    def request(self, pipe):
        return call(13, self.domain(pipe) + struct.pack("<III", 0, 0, 0xFFFFFFFF))


class AccountNames(OfSamr):
    """Lookups of names among many accounts."""

    name, text = "samr-names", "SamrLookupNamesInDomain of 1,000 names that nobody has among 20,000 accounts"

    def request(self, pipe):
        head = struct.pack("<IIII", 1000, 1000, 0, 1000)
        texts = [f"nobody{number:06}".encode("utf-16-le") for number in range(1000)]
        entries = b"".join(struct.pack("<HHI", len(text), len(text), POINTER + at) for at, text in enumerate(texts))
        strings = b"".join(struct.pack("<III", len(text) // 2, 0, len(text) // 2) + text for text in texts)
        return call(17, self.domain(pipe) + head + entries + strings)


class OfServer(Calls):
    """Calls about the server, from an account that does not administer it."""

    pipe, interface, version = "srvsvc", SRVSVC, 3
    calls = ()

    def request(self, pipe):
        return self.calls


def listed(number, level, nulls):
    """A call that lists, with null for all names: MS-SRVS 3.1.4."""
    info = struct.pack("<IIIIIII", level, level, POINTER, 0, 0, 0xFFFFFFFF, 0)
    return call(number, struct.pack("<I", 0) * nulls + info)


class Shares(OfServer):
    """Lists of shares."""

    name, text = "shares", "NetrShareEnum, one call at a time on each connection"

    def request(self, pipe):
        return call(15, SHARES)


class Files(OfServer):
    """Lists of files, with many open."""

    name, text = "files", "NetrFileEnum while 10,000 files are open, one call at a time on each connection"

    def run(self, clients, end):
        for number in range(10_000):
            clients[number % len(clients)].open(f"open-{number % 100}")
        return super().run(clients, end)

    def request(self, pipe):
        return listed(9, 3, 3)


class ServerSessions(OfServer):
    """Lists of sessions."""

    name, text = "server-sessions", "NetrSessionEnum, one call at a time on each connection"

    def request(self, pipe):
        return listed(12, 10, 3)


ATTACKS = [Names(), Sids(), Accounts(), AccountNames(), Shares(), Files(), ServerSessions()]
