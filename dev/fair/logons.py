"""Attacks by logons: sessions on few connections, channels, sessions that log on again and again, and logons that are
never finished."""

import struct
import time

from client import MORE, SESSION_SETUP, Client, Gone, readable, setup, status_name, token_of
from cryptography.hazmat.primitives import cmac
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from ntlm import Logon

from attacks import Attack, Reopenings

BINDING, SIGNED = 1, 8


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
        statuses, under_way, first_token = {}, {}, Logon("ann").step()
        sockets = {client.socket: client for client in clients}

        def begin(client):
            logon = Logon("ann") if self.finishes else None
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
        self.connect(port, guid=first.guid)
        self.session_id, self.seal_key, self.unseal_key = first.session_id, first.seal_key, first.unseal_key
        logon = Logon("ann")
        self.status, message = self.bind(first, logon.step())
        if self.status == MORE:
            self.status, _ = self.bind(first, logon.step(token_of(message)))
        self.tree_id = first.tree_id

    def bind(self, first, token):
        """Sends one token of the logon, signed with the key of the session."""
        body, signature = setup(token, BINDING), cmac.CMAC(AES(first.signing_key))
        signature.update(self.header(SESSION_SETUP, self.message_id, flags=SIGNED) + body)
        return self.call(SESSION_SETUP, body, plain=True, flags=SIGNED, signature=signature.finalize())


class Channels(Reopenings):
    """Sessions of 32 channels each."""

    name, text = "channels", "sessions of 32 channels each, all of which open and close a file, one request at a time"
    most = 64

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
