"""Attacks that make others wait for an answer, or have none: leases that nobody gives back, guesses, places."""

import contextlib
import itertools
import os
import threading
import time

from client import (
    CREATE,
    SET_INFO,
    TREE_CONNECT,
    Client,
    Gone,
    create,
    lease,
    rename,
    status_name,
    tree_connect,
)
from ntlm import Logon

from attacks import DIRECTORY, LIST, SOME, Attack

DELETE = 0x10000
OPEN, OPEN_OR_MAKE = 1, 3
#: Seconds that one request may wait for breaks, and what the machine may add.
BREAKS = 36


class Leases(Attack):
    """Leases below a folder that are not given back when the folder is renamed."""

    name, text = "leases", "1,000 leases below a folder, whose breaks nobody answers, while bob renames the folder"
    seconds = 1

    def run(self, clients, _end):
        clients[0].open("leased", access=LIST, options=DIRECTORY)
        for number in range(1000):
            contexts = lease(os.urandom(16), 7)
            clients[number % len(clients)].open(f"leased\\f{number}", access=0x120089, oplock=0xFF, contexts=contexts)
        bob = Client(self.server.port, "bob")
        folder = bob.open("leased", access=LIST | DELETE, options=DIRECTORY, disposition=OPEN)
        began = time.time()
        status, _ = bob.call(SET_INFO, rename(folder, "renamed"), timeout=120)
        took = time.time() - began
        bob.close()
        if took > BREAKS:
            self.missed.append(f"the rename takes {took:.0f} s, {BREAKS} are allowed")
        return f"bob's rename: {status_name(status)} after {took:.1f} s"


class Queue(Attack):
    """CREATEs of one account that wait for the file that bob wants."""

    name = "queue"
    text = "a CREATE of each connection that gets the only oplock of a file and keeps it, before bob's CREATE"
    seconds = 1

    def run(self, clients, _end):
        clients[0].open("queued", oplock=9)
        for client in clients[1:]:
            client.send(CREATE, create("queued", oplock=9))
            time.sleep(0.8 / len(clients))
        bob = Client(self.server.port, "bob")
        began = time.time()
        status, _ = bob.call(CREATE, create("queued", disposition=OPEN), timeout=120)
        took = time.time() - began
        bob.close()
        if took > BREAKS:
            self.missed.append(f"the CREATE takes {took:.0f} s, {BREAKS} are allowed")
        return f"bob's CREATE: {status_name(status)} after {took:.1f} s"


class Guesser(Client):
    """A connection that guesses bob's password, and has no other account."""

    def __init__(self, port, source):
        self.source = source
        self.connect(port, timeout=10)
        self.log_on(Logon("bob", os.urandom(16)), timeout=10)


class Guesses(Attack):
    """Wrong passwords for the account of those who log on from this address."""

    name = "guesses"
    text = (
        "logons as bob with wrong passwords on each connection, 40 from the address of the newcomers, and as many from "
        "each of as many more addresses as are needed"
    )
    # An address may have 64 connections on which nobody has logged on, and the newcomers are at this one.
    connections, each = SOME, 40
    goals = (("bob", 0.5, 5), ("bob", 0.99, 20), ("new", 0.99, 4500))

    def run(self, clients, end):
        guesses = itertools.count()

        def guess(source):
            while time.time() < end:
                next(guesses)
                with contextlib.suppress(Gone, OSError, TimeoutError):
                    Guesser(self.server.port, source)
                time.sleep(0.01)

        places = [divmod(number // self.each, 250) for number in range(len(clients))]
        sources = [f"127.{1 + high}.{low}.1" if high or low else "127.0.0.1" for high, low in places]
        threads = [threading.Thread(target=guess, args=(source,), daemon=True) for source in sources]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0, end + 10 - time.time()))
        return f"{next(guesses)} guesses"


class Places(Attack):
    """Tree connections of a share that has a limit of them."""

    name, text = "trees", "tree connections of a share with `max_connections = 50`, as many as the server gives"
    connections, share, with_tree = SOME, "max_connections = 50", False

    def run(self, clients, end):
        taken = 0
        for client in (clients * 8)[: max(len(clients), 400)]:
            with contextlib.suppress(Gone):
                status, _ = client.call(TREE_CONNECT, tree_connect(r"\\127.0.0.1\share"), tree_id=0)
                taken += status == 0
        time.sleep(max(0, end - time.time()))
        return f"{taken} tree connections"


ATTACKS = [Leases(), Queue(), Guesses(), Places()]
