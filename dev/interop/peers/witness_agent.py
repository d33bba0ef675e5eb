"""Registers the mounts of cifs.ko that have the option `witness` with witnesses, and tells the kernel what these tell.

witness_agent.py [--seconds N] [--no-share] [--ready FILE]: prints a line for each event. It runs in the guest whose
kernel has the mounts, and makes the file when it hears the kernel: a mount of before would not be heard. With
--no-share it names no share: it is told by CLIENT_MOVE to move, not by SHARE_MOVE.
"""

import argparse
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import cifs_netlink
import swn

# Seconds between two attempts at a registration.
PAUSE = 1.0


def say(*words):
    print("witness:", *words, flush=True)


class Registration:
    """One registration of the kernel, with a thread that keeps it at a witness."""

    def __init__(self, kernel, number, found, names_share):
        self.kernel, self.number, self.names_share = kernel, number, names_share
        self.net_name, self.share, self.user, self.password, self.domain = (
            cifs_netlink.text(found.get(kind, b""))
            for kind in (
                cifs_netlink.NET_NAME,
                cifs_netlink.SHARE_NAME,
                cifs_netlink.USER,
                cifs_netlink.PASSWORD,
                cifs_netlink.DOMAIN,
            )
        )
        self.ip = cifs_netlink.address_of(found[cifs_netlink.IP])
        self.is_over = False
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while not self.is_over:
            try:
                self.watch()
            except Exception as error:
                if not self.is_over:
                    say("failed", self.number, type(error).__name__, error)
            time.sleep(PAUSE)

    def connect(self, address):
        return swn.Witness(address, self.user, self.password, self.domain)

    def watch(self):
        """Registers with another node than the one in use, and tells the kernel until the end: MS-SWN 3.2.4."""
        node = self.connect(self.ip)
        interfaces = node.interfaces()
        node.close()
        own = socket.inet_aton(self.ip)
        for name, _, state, addresses, flags in interfaces:
            if not flags & swn.WITNESS or state != swn.AVAILABLE or own in addresses or len(addresses[0]) != 4:
                continue
            witness = self.connect(socket.inet_ntoa(addresses[0]))
            witness.register(self.net_name, self.share if self.names_share else None, self.ip)
            say("registered", self.number, self.net_name, self.share, self.ip, "at", name)
            while not self.is_over:
                if news := witness.news():
                    self.tell(*news)
                    if self.has_come(*news):
                        break
            witness.close()
            return
        raise LookupError("no other node is a witness")

    def has_come(self, kind, messages):
        """True if the address in use is at a node again, which may be the witness itself: the next registration is
        with another one. The kernel does not register again, since its address is the same."""
        return kind == swn.RESOURCE_CHANGE and messages[-1] == (swn.AVAILABLE, self.ip)

    def tell(self, kind, messages):
        if self.is_over:
            return
        for state_or_flags, value in messages:
            if kind == swn.RESOURCE_CHANGE:
                say("change", self.number, value, state_or_flags)
                self.kernel.resource_changed(self.number, value, state_or_flags)
            elif kind in (swn.CLIENT_MOVE, swn.SHARE_MOVE):
                word = "client-move" if kind == swn.CLIENT_MOVE else "share-move"
                say(word, self.number, socket.inet_ntoa(value[:4]))
                # cifs.ko knows CLIENT_MOVE alone, and goes to one address.
                self.kernel.move(self.number, value)
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--no-share", action="store_true")
    parser.add_argument("--ready", type=Path)
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    # Notifications are sent from several threads, so each has a socket of its own.
    events = cifs_netlink.Kernel()
    say("ready")
    if arguments.ready:
        arguments.ready.touch()
    known = {}
    while time.monotonic() < end:
        command, found = events.next()
        (number,) = struct.unpack("=I", found[cifs_netlink.ID])
        if command == cifs_netlink.UNREGISTER and number in known:
            known.pop(number).is_over = True
            say("unregistered", number)
        elif command == cifs_netlink.REGISTER:
            ip = cifs_netlink.address_of(found[cifs_netlink.IP])
            # The kernel repeats its registrations from time to time.
            if number in known and known[number].ip == ip:
                continue
            if number in known:
                known.pop(number).is_over = True
            known[number] = Registration(cifs_netlink.Kernel(), number, found, not arguments.no_share)


if __name__ == "__main__":
    sys.exit(main())
