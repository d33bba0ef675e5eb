"""Attacks that make others wait for an answer, or have none: leases that nobody gives back, guesses, places."""

import contextlib
import threading
import time
import uuid

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
from smbprotocol.connection import Connection
from smbprotocol.exceptions import SMBException
from smbprotocol.session import Session

from attacks import DIRECTORY, LIST, Attack

DELETE = 0x10000
OPEN, OPEN_OR_MAKE = 1, 3
#: Seconds that one request may wait for breaks, and what the machine may add.
BREAKS = 36


class Leases(Attack):
    """Leases below a folder that are not given back when the folder is renamed."""

    name, text = "leases", "1,000 leases below a folder, whose breaks nobody answers, while bob renames the folder"
    connections, seconds = (16,), 1

    def run(self, clients, _end):
        clients[0].open("leased", access=LIST, options=DIRECTORY)
        for number in range(1000):
            contexts = lease(uuid.uuid4().bytes, 7)
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

    name, text = "queue", "16 CREATEs that each get the only oplock of a file and keep it, before bob's CREATE"
    connections, seconds = (16,), 1

    def run(self, clients, _end):
        clients[0].open("queued", oplock=9)
        for client in clients[1:]:
            client.send(CREATE, create("queued", oplock=9))
            time.sleep(0.05)
        bob = Client(self.server.port, "bob")
        began = time.time()
        status, _ = bob.call(CREATE, create("queued", disposition=OPEN), timeout=120)
        took = time.time() - began
        bob.close()
        if took > BREAKS:
            self.missed.append(f"the CREATE takes {took:.0f} s, {BREAKS} are allowed")
        return f"bob's CREATE: {status_name(status)} after {took:.1f} s"


class Guesses(Attack):
    """Wrong passwords for the account of those who log on from this address."""

    name, text = "guesses", "logons as bob with wrong passwords, from the address of the newcomers, on 40 connections"
    # An address may have 64 connections on which nobody has logged on, and the newcomers are at this one.
    connections, most = (40,), 50
    goals = (("bob", 0.5, 5), ("bob", 0.99, 20), ("new", 0.99, 4500))

    def run(self, clients, end):
        guesses = []

        def guess():
            while time.time() < end:
                connection = Connection(uuid.uuid4(), "127.0.0.1", self.server.port)
                with contextlib.suppress(SMBException, OSError, ValueError):
                    connection.connect(timeout=10)
                    guesses.append(1)
                    Session(connection, "bob", "wrong").connect()
                with contextlib.suppress(SMBException, OSError):
                    connection.disconnect(close=False)

        threads = [threading.Thread(target=guess, daemon=True) for _ in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0, end + 10 - time.time()))
        return f"{len(guesses)} guesses"


class Places(Attack):
    """Tree connections of a share that has a limit of them."""

    name, text = "trees", "tree connections of a share with `max_connections = 50`, as many as the server gives"
    connections, most, share = (16,), 40, "max_connections = 50"

    def run(self, clients, end):
        taken = 0
        for client in clients * 8:
            with contextlib.suppress(Gone):
                status, _ = client.call(TREE_CONNECT, tree_connect(r"\\127.0.0.1\share"), tree_id=0)
                taken += status == 0
        time.sleep(max(0, end - time.time()))
        return f"{taken + len(clients)} tree connections"


ATTACKS = [Leases(), Queue(), Guesses(), Places()]
