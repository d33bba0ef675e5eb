"""A client that makes its requests by hand: sealed, many in flight, and none waited for unless the caller asks."""

import contextlib
import hashlib
import hmac
import os
import select
import socket
import struct
import time

from cryptography.hazmat.primitives.ciphers import aead
from ntlm import Logon

NEGOTIATE, SESSION_SETUP = range(2)
LOGOFF, TREE_CONNECT, TREE_DISCONNECT, CREATE, CLOSE, FLUSH, READ, WRITE, LOCK, IOCTL, CANCEL, ECHO = range(2, 14)
QUERY_DIRECTORY, CHANGE_NOTIFY, QUERY_INFO, SET_INFO, OPLOCK_BREAK = range(14, 19)
PENDING, MORE = 0x103, 0xC0000016
PASSWORDS = {"ann": "secret-1", "bob": "secret-2"}
NAMES = {
    0x00000000: "STATUS_SUCCESS",
    0x0000010C: "STATUS_NOTIFY_ENUM_DIR",
    0x80000005: "STATUS_BUFFER_OVERFLOW",
    0x80000006: "STATUS_NO_MORE_FILES",
    0x8000001A: "STATUS_NO_MORE_ENTRIES",
    0xC000000D: "STATUS_INVALID_PARAMETER",
    0xC0000016: "STATUS_MORE_PROCESSING_REQUIRED",
    0xC0000022: "STATUS_ACCESS_DENIED",
    0xC0000023: "STATUS_BUFFER_TOO_SMALL",
    0xC0000034: "STATUS_OBJECT_NAME_NOT_FOUND",
    0xC0000035: "STATUS_OBJECT_NAME_COLLISION",
    0xC000003A: "STATUS_OBJECT_PATH_NOT_FOUND",
    0xC0000043: "STATUS_SHARING_VIOLATION",
    0xC0000056: "STATUS_DELETE_PENDING",
    0xC000006D: "STATUS_LOGON_FAILURE",
    0xC000007F: "STATUS_DISK_FULL",
    0xC000009A: "STATUS_INSUFFICIENT_RESOURCES",
    0xC00000BB: "STATUS_NOT_SUPPORTED",
    0xC00000D0: "STATUS_REQUEST_NOT_ACCEPTED",
    0xC000011F: "STATUS_TOO_MANY_OPENED_FILES",
}
#: Signing, and all capabilities: MS-SMB2 2.2.3.
SIGNING, CAPABILITIES = 1, 0x7F
#: The negotiate contexts for SHA-512 and for AES-128-GCM: MS-SMB2 2.2.3.1.
PREAUTH, ENCRYPTION = 1, 2


def readable(sockets, seconds):
    """Returns those of the sockets that can be read within a time, whatever their numbers are."""
    poll, known = select.poll(), {socket.fileno(): socket for socket in sockets}
    for number in known:
        poll.register(number, select.POLLIN)
    return [known[number] for number, _ in poll.poll(seconds * 1000)]


class Gone(Exception):
    """The server has closed the connection."""


def status_name(status):
    return NAMES.get(status, hex(status))


def derived(key, label, context):
    """A key for one use, SP800-108 and MS-SMB2 3.1.4.2."""
    return hmac.digest(key, b"\0\0\0\1" + label + b"\0\0" + context + b"\0\0\0\x80", "sha256")[:16]


class Client:
    """One connection with one session, sealed, and one tree connect, unless `share` is None."""

    #: The address that it connects from. Any one if empty.
    source = ""

    def __init__(self, port, user, share="share", timeout=60, guid=None):
        self.connect(port, timeout, guid)
        try:
            self.log_on(Logon(user), timeout)
            if share:
                self.tree_id = self.connect_tree(share, timeout)
        except BaseException:
            self.close()
            raise

    def connect(self, port, timeout=60, guid=None):
        """Connects and negotiates."""
        self.guid, origin = guid or os.urandom(16), (self.source, 0) if self.source else None
        self.socket = socket.create_connection(("127.0.0.1", port), timeout, origin)
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.message_id, self.credits, self.session_id, self.tree_id = 0, 1, 0, 0
        self.nonce = int.from_bytes(os.urandom(4), "little") << 48
        self.received, self.queued = bytearray(), bytearray()
        self.answers, self.pending, self.breaks, self.last = {}, {}, [], b""
        self.preauth, self.unseal_key = bytes(64), None
        _, self.negotiated = self.exchange(NEGOTIATE, negotiate(self.guid), timeout)

    def exchange(self, command, body, timeout, **header):
        """Makes a request whose messages are part of the hash of the logon, MS-SMB2 3.2.5.2 and 3.2.5.3."""
        message = self.header(command, self.message_id, **header) + body
        status, answer = self.call(command, body, timeout, plain=True, **header)
        self.preauth = hashlib.sha512(self.preauth + message).digest()
        if status != 0 or command == NEGOTIATE:
            self.preauth = hashlib.sha512(self.preauth + answer).digest()
        return status, answer

    def log_on(self, logon, timeout=60):
        """Makes the session and its keys."""
        status, answer = self.exchange(SESSION_SETUP, setup(logon.step()), timeout)
        self.session_id = struct.unpack_from("<Q", answer, 40)[0]
        if status == MORE:
            status, _ = self.exchange(SESSION_SETUP, setup(logon.step(token_of(answer))), timeout)
        if status:
            raise OSError(f"the logon fails: {status_name(status)}")
        self.signing_key = derived(logon.key, b"SMBSigningKey", self.preauth)
        self.seal_key = aead.AESGCM(derived(logon.key, b"SMBC2SCipherKey", self.preauth))
        self.unseal_key = aead.AESGCM(derived(logon.key, b"SMBS2CCipherKey", self.preauth))

    def connect_tree(self, share, timeout=60):
        """Returns the TreeId of a tree connect."""
        status, answer = self.call(TREE_CONNECT, tree_connect(rf"\\127.0.0.1\{share}"), timeout, tree_id=0)
        if status:
            raise OSError(f"{status_name(status)}: {share}")
        return struct.unpack_from("<I", answer, 36)[0]

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
        self.socket.close()


def negotiate(guid):
    """The body of NEGOTIATE for 3.1.1 and AES-128-GCM, MS-SMB2 2.2.3."""
    salt = os.urandom(32)
    hashing = struct.pack("<HHIHHH", PREAUTH, 6 + len(salt), 0, 1, len(salt), 1) + salt
    hashing += bytes(-len(hashing) % 8)
    sealing = struct.pack("<HHIHH", ENCRYPTION, 4, 0, 1, 2)
    fixed = struct.pack("<HHHHI16sIHHH", 36, 1, SIGNING, 0, CAPABILITIES, guid, 64 + 40, 2, 0, 0x311)
    return fixed + bytes(40 - len(fixed)) + hashing + sealing


def setup(token, flags=0):
    """The body of SESSION_SETUP, MS-SMB2 2.2.5."""
    return struct.pack("<HBBIIHHQ", 25, flags, SIGNING, 0, 0, 88, len(token), 0) + token


def token_of(message):
    """The security buffer of a SESSION_SETUP response, MS-SMB2 2.2.6."""
    offset, length = struct.unpack_from("<HH", message, 68)
    return message[offset : offset + length]


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


@contextlib.contextmanager
def at_niceness(niceness):
    """Gives this thread, which is the attacker's client, another priority."""
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
