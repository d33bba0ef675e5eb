"""Attacks by logons: sessions on few connections, channels, sessions that log on again and again, and logons that are
never finished."""

import struct
import time

import spnego
from client import PASSWORDS, Client, Gone, readable, status_name
from smbprotocol.connection import Connection

from attacks import Attack, Reopenings

SESSION_SETUP = 1
BINDING, SIGNED = 1, 8
MORE = 0xC0000016


def setup(token, flags=0):
    """The body of SESSION_SETUP, MS-SMB2 2.2.5."""
    return struct.pack("<HBBIIHHQ", 25, flags, 1, 0, 0, 88, len(token), 0) + token


def token_of(message):
    """The security buffer of a SESSION_SETUP response, MS-SMB2 2.2.6."""
    offset, length = struct.unpack_from("<HH", message, 68)
    return message[offset : offset + length]


def logon_of(user="ann"):
    """Returns one end of a logon by NTLM."""
    return spnego.client(user, PASSWORDS[user], service="cifs", hostname="127.0.0.1", protocol="ntlm")


class Logons(Attack):
    """Logons on connections that are logged on already, one after the other on each."""

    #: True for new sessions, whose first messages are not sealed.
    makes_sessions = True
    #: False if nobody sends the second token.
    finishes = True

    def ask(self, client, token, session_id):
        plain = {"plain": True, "session_id": session_id} if self.makes_sessions else {}
        return client.send(SESSION_SETUP, setup(token), tree_id=0, **plain)

    def run(self, clients, end):
        statuses, under_way, first_token = {}, {}, logon_of().step()
        sockets = {client.socket: client for client in clients}

        def begin(client):
            logon = logon_of() if self.finishes else None
            token = logon.step() if logon else first_token
            under_way[client] = logon, self.ask(client, token, 0)

        def go_on(client):
            logon, message_id = under_way[client]
            if message_id not in client.answers:
                return
            status, message = client.answers.pop(message_id)
            if status == MORE and logon:
                session_id = struct.unpack_from("<Q", message, 40)[0]
                under_way[client] = logon, self.ask(client, logon.step(token_of(message)), session_id)
                return
            statuses[status] = statuses.get(status, 0) + 1
            begin(client)

        for client in clients:
            begin(client)
        while time.time() < end and sockets:
            for ready in readable(sockets, 0.2):
                try:
                    sockets[ready].pump()
                    go_on(sockets[ready])
                except Gone:
                    del sockets[ready]
        counted = ", ".join(f"{count} {status_name(status)}" for status, count in statuses.items())
        return f"{counted}; {len(sockets)} connections are left"


class Sessions(Logons):
    """As many sessions as the server gives, on few connections."""

    name, text = "sessions", "new sessions, up to the 4,096 of an account, and refused ones from then on"
    connections, seconds = (64,), 15


class Unfinished(Logons):
    """First tokens of logons, which nobody finishes."""

    name, text = "unfinished", "SESSION_SETUP with the first token of a logon that is never finished, again and again"
    finishes = False


class Renewals(Logons):
    """Sessions that log on again and again."""

    name, text = "renewals", "SESSION_SETUP that authenticates the session of each connection anew, again and again"
    makes_sessions = False


class Channel(Client):
    """A further connection of a session, MS-SMB2 3.2.4.2.3."""

    def __init__(self, port, first):
        self.connection = Connection(first.connection.client_guid, "127.0.0.1", port, require_signing=True)
        self.connection.connect(timeout=60)
        self.take_over()
        self.session_id, self.tree_id = first.session_id, first.tree_id
        self.seal_key, self.unseal_key = first.seal_key, first.unseal_key
        logon = logon_of()
        self.status, message = self.bind(first, logon.step())
        if self.status == MORE:
            self.status, _ = self.bind(first, logon.step(token_of(message)))

    def bind(self, first, token):
        """Sends one token of the logon, signed with the key of the session."""
        body, how = setup(token, BINDING), {"flags": SIGNED, "tree_id": 0}
        message = self.header(SESSION_SETUP, self.message_id, **how) + body
        sign = self.connection._generate_signature
        signature = sign(message, first.signing_key, self.message_id, False, SESSION_SETUP)
        return self.call(SESSION_SETUP, body, plain=True, signature=signature, **how)


class Channels(Reopenings):
    """Sessions of 32 channels each."""

    name, text = "channels", "sessions of 32 channels each, all of which open and close a file, one request at a time"
    connections, most = (4, 32), 64

    def run(self, clients, end):
        channels, seconds = list(clients), end - time.time()
        for client in clients:
            # The first connection is a channel, too.
            bound = [Channel(self.server.port, client) for _ in range(31)]
            channels += [channel for channel in bound if not channel.status]
        done = super().run(channels, time.time() + seconds)
        for channel in channels:
            channel.close()
        return f"{len(channels)} channels, {done}"


ATTACKS = [Sessions(), Unfinished(), Renewals(), Channels()]
