"""Two clients that send every request to two servers, and the report of their differences."""

import collections
import os

import raw
from raw import Client

from .values import said

# Seconds to wait for an answer, and seconds to wait until smbd reports a change.
TIMEOUT = 15
SMBD_TELLS = 3


class Pair:
    """Two clients that send equal requests; a file is a pair of FileIds."""

    def __init__(self, addresses, port, share, report):
        self.where, self.port, self.share, self.report = addresses, port, share, report
        self.clients = []
        self.connect()

    def connect(self):
        for client in self.clients:
            client.close()
        self.clients = [
            Client(a, self.port, os.environ["SMB_USER"], os.environ["SMB_PASS"], timeout=TIMEOUT) for a in self.where
        ]
        for client, address in zip(self.clients, self.where, strict=True):
            client.tree_connect(address, self.share)

    def call(self, command, bodies, **more):
        """Returns both final answers to one request; `bodies` is one body or a pair."""
        bodies = bodies if isinstance(bodies, tuple) else (bodies, bodies)
        ids = [c.send(command, b, **more) for c, b in zip(self.clients, bodies, strict=True)]
        self.report.requests += 1
        return [c.await_answer(i) for c, i in zip(self.clients, ids, strict=True)]

    def notified(self, ids):
        """Returns both answers to CHANGE_NOTIFY, or None if smbd has lost the change.

        smbd answers "pending" before the daemon that watches knows of the watch, so a change that
        comes at once may be lost: 29 of 1,000 on a busy machine, where Frevo lost none of 8,000.
        """
        (ours, theirs), (first, second) = self.clients, ids
        answer = ours.await_answer(first)
        theirs.socket.settimeout(SMBD_TELLS)
        try:
            return [answer, theirs.await_answer(second)]
        except TimeoutError:
            theirs.cancel(second)
            theirs.socket.settimeout(TIMEOUT)
            theirs.await_answer(second)
            self.report.lost_by_smbd += 1
            return None
        finally:
            theirs.socket.settimeout(TIMEOUT)

    def on(self, file, make, *args, **more):
        """Returns the pair of bodies of a request that names a file."""
        return tuple(make(f, *args, **more) for f in file)

    def open(self, name, **more):
        """Opens a file on both servers, which must succeed; returns the pair of FileIds."""
        return tuple(a.must().body[64:80] for a in self.call(raw.CREATE, raw.create_body(name, **more)))

    def close(self, file):
        self.call(raw.CLOSE, self.on(file, raw.close_body))


class Report:
    def __init__(self):
        self.requests, self.differences = 0, collections.OrderedDict()
        # Number of changes that smbd did not report to a watch.
        self.lost_by_smbd = 0

    def differ(self, name, example):
        entry = self.differences.setdefault(name, [0, example])
        entry[0] += 1


class Differs(Exception):
    """The two servers are in different states; the scene ends."""


def same_status(report, what, answers, example):
    """Returns True if both statuses are equal; reports a difference."""
    ours, theirs = (a.status for a in answers)
    if ours != theirs:
        report.differ(f"{what}: {said(ours)}, smbd {said(theirs)}", example)
    return ours == theirs
