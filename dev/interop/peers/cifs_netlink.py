"""The generic netlink family "cifs", by which cifs.ko with `witness` asks a program of the host to register, and by
which it is told: the numbers of include/uapi/linux/cifs/cifs_netlink.h."""

import socket
import struct

NETLINK_GENERIC, SOL_NETLINK, ADD_MEMBERSHIP = 16, 270, 1
GENL_CTRL, CTRL_GETFAMILY = 16, 3
CTRL_FAMILY_ID, CTRL_FAMILY_NAME, CTRL_GROUPS, CTRL_GROUP_NAME, CTRL_GROUP_ID = 1, 2, 7, 1, 2
NLM_REQUEST, NLM_ACK, NLMSG_ERROR = 1, 4, 2
FAMILY, GROUP = b"cifs\0", b"cifs_mcgrp_swn\0"
REGISTER, UNREGISTER, NOTIFY = 1, 2, 3
(
    ID,
    NET_NAME,
    SHARE_NAME,
    IP,
    NET_NAME_NOTIFY,
    SHARE_NAME_NOTIFY,
    IP_NOTIFY,
    KRB_AUTH,
    USER,
    PASSWORD,
    DOMAIN,
    TYPE,
    STATE,
    RESOURCE,
) = range(1, 15)
# Bytes of struct sockaddr_storage.
STORAGE = 128


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def attributes(data):
    """The attributes of a message, by their numbers."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[length + -length % 4 :]
    return found


def text(value):
    return value.split(b"\0")[0].decode()


def address_of(storage):
    """The address in a sockaddr_storage, as text."""
    (family,) = struct.unpack_from("=H", storage)
    if family == socket.AF_INET:
        return socket.inet_ntop(family, storage[4:8])
    return socket.inet_ntop(socket.AF_INET6, storage[8:24])


def storage_of(address):
    """A sockaddr_storage with an address of 4 or 16 bytes. The kernel keeps the port of its connection."""
    if len(address) == 4:
        value = struct.pack("=H", socket.AF_INET) + bytes(2) + address
    else:
        value = struct.pack("=H", socket.AF_INET6) + bytes(6) + address
    return value.ljust(STORAGE, b"\0")


class Kernel:
    """The kernel's side. Messages about registrations come one by one from `next`."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.socket.bind((0, 0))
        self.sequence = 0
        self.family = GENL_CTRL
        self.send(CTRL_GETFAMILY, [(CTRL_FAMILY_NAME, FAMILY)])
        found = attributes(self.answer()[4:])
        (self.family,) = struct.unpack("=H", found[CTRL_FAMILY_ID])
        groups = [attributes(one) for one in attributes(found[CTRL_GROUPS]).values()]
        number = next(group[CTRL_GROUP_ID] for group in groups if group[CTRL_GROUP_NAME] == GROUP)
        self.events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.events.bind((0, 0))
        self.events.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, struct.unpack("=I", number)[0])

    def send(self, command, values):
        self.sequence += 1
        body = struct.pack("=BBH", command, 1, 0) + b"".join(attribute(*one) for one in values)
        head = struct.pack("=IHHII", 16 + len(body), self.family, NLM_REQUEST | NLM_ACK, self.sequence, 0)
        self.socket.send(head + body)

    def answer(self):
        """The answer to a request, after its acknowledgment; empty if it has none."""
        found = b""
        while True:
            data = self.socket.recv(65536)
            while len(data) >= 16:
                length, kind, _, _, _ = struct.unpack_from("=IHHII", data)
                body, data = data[16:length], data[length + -length % 4 :]
                if kind != NLMSG_ERROR:
                    found = body
                    continue
                (error,) = struct.unpack_from("=i", body)
                if error:
                    raise OSError(-error, "the kernel refuses a message of netlink")
                return found

    def next(self):
        """Waits for a message: its command and its attributes."""
        while True:
            data = self.events.recv(65536)
            length, kind = struct.unpack_from("=IH", data)
            if kind == self.family:
                return data[16], attributes(data[20:length])

    def resource_changed(self, number, name, state):
        self.notify(number, 1, [(RESOURCE, name.encode() + b"\0"), (STATE, struct.pack("=I", state))])

    def move(self, number, address):
        self.notify(number, 2, [(IP, storage_of(address))])

    def notify(self, number, kind, values):
        head = [(ID, struct.pack("=I", number)), (TYPE, struct.pack("=I", kind))]
        self.send(NOTIFY, head + values)
        self.answer()
