"""What one account does to the others. An attack prepares the data of its server once, and then gets as many
connections as a row has, and a time at which it ends.

A new one is a class with `name`, `text` and `run`, in the list ATTACKS at the end.
"""

import contextlib
import select
import struct
import time

from client import (
    CLOSE,
    CREATE,
    ECHO,
    LOCK,
    QUERY_DIRECTORY,
    Gone,
    charge,
    close,
    create,
    lock,
    query_directory,
)

LIST = 0x100081
DIRECTORY = 1
#: The numbers of connections of the attacks that had most effect, and of others that had some.
EACH, SOME = (1, 16, 128, 1000), (16, 1000)


class Attack:
    """An attack with the settings of the server that it needs."""

    name = text = ""
    descriptors, settings, share, limits = 20000, "", "", ""
    #: Number of accounts beside ann and bob, and the names of ann's groups.
    accounts, groups = 0, ()
    #: The file system of the share, on an image of its own; that of the directory of the run without one.
    file_system = ""
    #: Number of empty files in the share's folder `many`.
    files = 0
    #: Duration of an attack in seconds.
    seconds = 3
    #: The numbers of connections of its rows.
    connections = (1000,)
    #: The largest number that makes sense.
    most = 1000
    #: Milliseconds that others may wait: bob at the median, bob at the 99th percentile, a new client at
    #: the 99th percentile.
    goals = (("bob", 0.5, 5), ("bob", 0.99, 20), ("new", 0.99, 150))
    #: False where the connections of the attack come without a tree connect.
    with_tree = True
    #: True where the protocol has the server keep handles of clients that are lost.
    keeps = False
    #: The server that is attacked. It has a port.
    server = None

    def __init__(self):
        #: Goals of its own that it has missed.
        self.missed = []

    def prepare(self, data):
        """Makes the files of the share below `data`."""

    def run(self, clients, end):
        """Attacks with the connections of one account until `end`. Returns what it achieved, in a few words."""
        raise NotImplementedError


def keep_busy(clients, end, requests, note=lambda client, status: None):
    """Has each client make the requests of `requests(client, number)`, one after the other, until `end`, or
    until there is none. Returns the number of answers. A request is of command, body and credit charge."""
    numbers, waiting, answered = dict.fromkeys(clients, 0), {}, 0
    ready, sockets = select.epoll(), {client.socket.fileno(): client for client in clients}

    def leave(client):
        number = client.socket.fileno()
        if sockets.pop(number, None):
            ready.unregister(number)

    def go_on(client):
        request = requests(client, numbers[client])
        if request is None:
            leave(client)
            return
        command, body, cost = request
        waiting[client] = client.send(command, body, charge=cost)
        numbers[client] += 1

    def take(client):
        client.pump()
        if waiting[client] not in client.answers:
            return 0
        note(client, client.answers[waiting[client]][0])
        client.answers.clear()
        go_on(client)
        return 1

    for number in sockets:
        ready.register(number, select.EPOLLIN)
    for client in clients:
        with contextlib.suppress(Gone):
            go_on(client)
    while time.time() < end and sockets:
        for number, _ in ready.poll(0.2):
            try:
                answered += take(sockets[number])
            except Gone:
                leave(sockets[number])
    ready.close()
    return answered


class Searches(Attack):
    """Listings whose pattern matches no name."""

    name, files = "search", 200_000
    text = "QUERY_DIRECTORY of 200,000 names with the pattern `*zzz*`, one request at a time on each connection"
    connections = EACH
    pattern, level, length = "*zzz*", 1, 4096

    def run(self, clients, end):
        folders = {client: client.open("many", access=LIST, options=DIRECTORY) for client in clients}

        def again(client, _):
            body = query_directory(folders[client], self.pattern, self.level, 1, self.length)
            return QUERY_DIRECTORY, body, charge(self.length)

        return f"{keep_busy(clients, end, again)} answers"


class Listings(Searches):
    """Listings of all names in answers of 8 MiB."""

    name = "list"
    text = "QUERY_DIRECTORY of 200,000 names in answers of 8 MiB, one request at a time on each connection"
    connections = SOME
    pattern, level, length = "*", 37, 8 << 20


class Echoes(Attack):
    """The cheapest request, as fast as it is answered."""

    name, text = "echo", "ECHO, one request at a time on each connection"

    def run(self, clients, end):
        request = (ECHO, struct.pack("<HH", 4, 0), 1)
        return f"{keep_busy(clients, end, lambda *_: request)} answers"


class Folders(Attack):
    """Handles of folders, which are kept, as many as the server gives."""

    name, descriptors, connections = "handles", 4000, EACH
    text = "handles of a folder, kept open, where the server may have 4,000 descriptors"

    def run(self, clients, end):
        # A client that was refused once asks no more.
        refused, kept = set(), []

        def again(client, _):
            return None if client in refused else (CREATE, create("", access=LIST, options=DIRECTORY), 1)

        def note(client, status):
            (refused.add if status else kept.append)(client)

        keep_busy(clients, end, again, note)
        time.sleep(max(0, end - time.time()))
        return f"{len(kept)} handles"


class Locks(Attack):
    """Locks that wait for one that is held."""

    connections = SOME
    name, text = "locks", "16,000 LOCKs that wait for a range, and are given up with their connections"

    def run(self, clients, end):
        files = [client.open("locked", disposition=3) for client in clients]
        holder = clients[0]
        holder.call(LOCK, lock(files[0], [(0, 1, 2)]))
        each = max(1, 16_000 // len(clients))
        waiting = 0
        for client, file in zip(clients, files, strict=True):
            for _ in range(min(each, 1000)):
                if client.credits < 2:
                    client.pump(0.2)
                if client.credits < 2:
                    break
                client.queue(LOCK, lock(file, [(0, 1, 2)]))
                waiting += 1
            client.flush()
        while time.time() < end:
            for client in clients:
                client.pump()
            time.sleep(0.05)
        return f"{waiting} LOCKs"


class Reopenings(Attack):
    """Opens and closes, the usual work of a client, as fast as they are answered."""

    name, text = "open-close", "CREATE and CLOSE of one file, one request at a time on each connection"

    def run(self, clients, end):
        opened = {}

        def again(client, number):
            if number % 2 == 0:
                return CREATE, create("probe.bin", access=0x120089, disposition=1), 1
            return CLOSE, close(opened.pop(client)), 1

        class Noting(dict):
            """The answers of one client, which notes the FileId of the last CREATE."""

            def __init__(self, client):
                super().__init__()
                self.client = client

            def __setitem__(self, message_id, answer):
                super().__setitem__(message_id, answer)
                opened[self.client] = answer[1][128:144]

        for client in clients:
            client.answers = Noting(client)
        return f"{keep_busy(clients, end, again)} answers"


ATTACKS = [Searches(), Listings(), Echoes(), Reopenings(), Folders(), Locks()]
