"""A client that logs on with smbprotocol and then makes requests by hand: sealed, many in flight, and none
waited for unless the caller asks."""

import os
import select
import struct
import time
import uuid

import smbprotocol.connection
import smbprotocol.transport
from cryptography.hazmat.primitives.ciphers import aead
from smbprotocol.connection import Connection
from smbprotocol.header import NtStatus
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

LOGOFF, TREE_CONNECT, TREE_DISCONNECT, CREATE, CLOSE, FLUSH, READ, WRITE, LOCK, IOCTL, CANCEL, ECHO = range(2, 14)
QUERY_DIRECTORY, CHANGE_NOTIFY, QUERY_INFO, SET_INFO, OPLOCK_BREAK = range(14, 19)
PENDING = 0x103
PASSWORDS = {"ann": "secret-1", "bob": "secret-2"}
NAMES = {value & 0xFFFFFFFF: name for name, value in vars(NtStatus).items() if isinstance(value, int)}


def readable(sockets, seconds):
    """Returns those of the sockets that can be read within a time, whatever their numbers are."""
    poll, known = select.poll(), {socket.fileno(): socket for socket in sockets}
    for number in known:
        poll.register(number, select.POLLIN)
    return [known[number] for number, _ in poll.poll(seconds * 1000)]


class Stoppable(smbprotocol.transport.Tcp):
    """A transport whose reading thread ends when this client takes the socket over."""

    stop = False

    def _recv(self, length, timeout):
        data = bytearray()
        while len(data) < length:
            if self.stop or not self.connected:
                return None, timeout
            if not readable([self._sock], 0.02):
                continue
            if self.stop:
                return None, timeout
            try:
                part = self._sock.recv(length - len(data))
            except OSError:
                part = b""
            if not part:
                self.connected = False
                return None, timeout
            data += part
        return bytes(data), timeout


smbprotocol.connection.Tcp = Stoppable


class Gone(Exception):
    """The server has closed the connection."""


def status_name(status):
    return NAMES.get(status, hex(status))


class Client:
    """One connection with one session, sealed, and one tree connect."""

    def __init__(self, port, user, share="share", timeout=60, guid=None):
        self.connection = Connection(guid or uuid.uuid4(), "127.0.0.1", port, require_signing=True)
        self.connection.connect(timeout=timeout)
        session = Session(self.connection, user, PASSWORDS[user], require_encryption=True)
        session.connect()
        tree = TreeConnect(session, rf"\\127.0.0.1\{share}")
        tree.connect()
        self.session_id, self.tree_id = session.session_id, tree.tree_connect_id
        self.signing_key = session.signing_key
        self.seal_key = aead.AESGCM(session.encryption_key)
        self.unseal_key = aead.AESGCM(session.decryption_key)
        self.take_over()

    def take_over(self):
        """Stops the library's reader thread: from here on only this object reads the socket."""
        self.connection.transport.stop = True
        self.connection._t_worker.join(2)
        self.socket = self.connection.transport._sock
        self.socket.settimeout(None)
        window = self.connection.sequence_window
        self.message_id, self.credits = window["low"], window["high"] - window["low"]
        self.nonce = int.from_bytes(os.urandom(4), "little") << 48
        self.received, self.queued = bytearray(), bytearray()
        self.answers, self.pending, self.breaks, self.last = {}, {}, [], b""

    def queue(self, command, body, charge=1, plain=False, **header):
        """Seals a request, unless it is to be `plain`; `flush` sends it. Returns its MessageId."""
        message_id = self.message_id
        self.message_id += max(charge, 1)
        self.credits -= max(charge, 1)
        message = self.header(command, message_id, charge, **header) + body
        self.queued += framed(message) if plain else self.sealed(message)
        return message_id

    def header(
        self,
        command,
        message_id,
        charge=1,
        flags=0,
        credits=512,
        async_id=None,
        tree_id=None,
        session_id=None,
        following=0,
        signature=bytes(16),
    ):
        start = struct.pack("<4sHHIHHIIQ", b"\xfeSMB", 64, charge, 0, command, credits, flags, following, message_id)
        tree_id = self.tree_id if tree_id is None else tree_id
        route = struct.pack("<II", 0xFEFF, tree_id) if async_id is None else struct.pack("<Q", async_id)
        session_id = self.session_id if session_id is None else session_id
        return start + route + struct.pack("<Q", session_id) + signature

    def sealed(self, message):
        self.nonce += 1
        nonce = struct.pack("<Q", self.nonce & (2**64 - 1)) + b"\1\2\3\4"
        head = nonce + bytes(4) + struct.pack("<IHHQ", len(message), 0, 1, self.session_id)
        text = self.seal_key.encrypt(nonce, message, head)
        return framed(b"\xfdSMB" + text[-16:] + head + text[:-16])

    def flush(self):
        queued, self.queued = self.queued, bytearray()
        try:
            self.socket.sendall(queued)
        except OSError as error:
            raise Gone(str(error)) from error

    def send(self, command, body, **header):
        message_id = self.queue(command, body, **header)
        self.flush()
        return message_id

    def pump(self, timeout=0.0):
        """Takes the responses that come within `timeout`."""
        if not readable([self.socket], timeout):
            return
        try:
            data = self.socket.recv(1 << 20)
        except OSError as error:
            raise Gone(str(error)) from error
        if not data:
            raise Gone("closed")
        self.received += data
        while len(self.received) >= 4:
            length = struct.unpack_from(">I", self.received)[0]
            if len(self.received) < 4 + length:
                return
            packet = bytes(self.received[4 : 4 + length])
            del self.received[: 4 + length]
            self.take(packet)

    def take(self, packet):
        if packet[:4] == b"\xfdSMB":
            packet = self.unseal_key.decrypt(packet[20:32], packet[52:] + packet[4:20], packet[20:52])
        at = 0
        while True:
            following = struct.unpack_from("<I", packet, at + 20)[0]
            self.take_one(packet[at : at + following] if following else packet[at:])
            if not following:
                return
            at += following

    def take_one(self, message):
        status, command, granted = struct.unpack_from("<IHH", message, 8)
        message_id = struct.unpack_from("<Q", message, 24)[0]
        self.credits += granted
        if command == OPLOCK_BREAK and message_id == 2**64 - 1:
            self.breaks.append(message)
        elif status == PENDING:
            self.pending[message_id] = struct.unpack_from("<Q", message, 32)[0]
        else:
            self.answers[message_id], self.last = (status, message), message

    def wait(self, message_id, timeout=60):
        end = time.monotonic() + timeout
        while message_id not in self.answers:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer to message {message_id}")
            self.pump(left)
        return self.answers.pop(message_id)

    def call(self, command, body, timeout=60, **header):
        """Returns status and response of one request."""
        return self.wait(self.send(command, body, **header), timeout)

    def open(self, name, **how):
        """Returns the FileId of an Open."""
        status, message = self.call(CREATE, create(name, **how))
        if status:
            raise OSError(f"{status_name(status)}: {name}")
        return message[128:144]

    def close(self):
        self.connection.transport.connected = False
        self.socket.close()


def framed(packet):
    """Puts the length before a message, MS-SMB2 2.1."""
    return struct.pack(">I", len(packet)) + packet


def create(name, access=0x12019F, disposition=3, options=0, sharing=7, oplock=0, contexts=b""):
    """The body of CREATE, MS-SMB2 2.2.13."""
    name = name.encode("utf-16-le")
    offset, at, buffer = 64 + 56, 0, name or bytes(2)
    if contexts:
        buffer += bytes(-(offset + len(buffer)) % 8)
        at = offset + len(buffer)
        buffer += contexts
    fixed = struct.pack("<HBBIQQ", 57, 0, oplock, 2, 0, 0)
    wanted = struct.pack("<IIIII", access, 0x80, sharing, disposition, options)
    return fixed + wanted + struct.pack("<HHII", offset, len(name), at, len(contexts)) + buffer


def context(name, data):
    """One create context, MS-SMB2 2.2.13.2."""
    head = struct.pack("<IHHHHI", 0, 16, len(name), 0, 24 if data else 0, len(data))
    return head + name + bytes(-len(name) % 8) + data


def lease(key, state):
    """A create context that asks for a lease, MS-SMB2 2.2.13.2.8."""
    return context(b"RqLs", key + struct.pack("<IIQ", state, 0, 0))


def close(file_id):
    return struct.pack("<HHI", 24, 0, 0) + file_id


def read(file_id, offset, length):
    return struct.pack("<HBBIQ", 49, 0x50, 0, length, offset) + file_id + bytes(16) + b"\0"


def write(file_id, offset, data):
    return struct.pack("<HHIQ", 49, 112, len(data), offset) + file_id + bytes(16) + data


def lock(file_id, ranges):
    """The body of LOCK: ranges are of offset, length and flags (1 shared, 2 exclusive, 4 unlock, 16 at once)."""
    elements = b"".join(struct.pack("<QQII", *element, 0) for element in ranges)
    return struct.pack("<HHI", 48, len(ranges), 0) + file_id + elements


def notify(file_id, length=65536, completion=0xFFF, is_tree=False):
    return struct.pack("<HHI", 32, int(is_tree), length) + file_id + struct.pack("<II", completion, 0)


def query_directory(file_id, pattern="*", level=37, flags=0, length=65536):
    pattern = pattern.encode("utf-16-le")
    return struct.pack("<HBBI", 33, level, flags, 0) + file_id + struct.pack("<HHI", 96, len(pattern), length) + pattern


def query_info(file_id, level, length=65536, kind=1, flags=0):
    return struct.pack("<HBBIHHIII", 41, kind, level, length, 0, 0, 0, 0, flags) + file_id


def set_info(file_id, level, data, kind=1):
    return struct.pack("<HBBIHHI", 33, kind, level, len(data), 96, 0, 0) + file_id + data


def rename(file_id, name):
    name = name.encode("utf-16-le")
    return set_info(file_id, 10, struct.pack("<B7xQI", 0, 0, len(name)) + name)


def ioctl(file_id, code, data=b"", output=65536):
    """The body of IOCTL with an FSCTL, MS-SMB2 2.2.31."""
    return (
        struct.pack("<HHI", 57, 0, code)
        + file_id
        + struct.pack("<IIIIIIII", 120, len(data), 0, 0, 0, output, 1, 0)
        + data
    )


def tree_connect(path):
    path = path.encode("utf-16-le")
    return struct.pack("<HHHH", 9, 0, 72, len(path)) + path


def charge(length):
    """The CreditCharge of a payload, MS-SMB2 3.1.5.2."""
    return max(1, (length - 1) // 65536 + 1)
