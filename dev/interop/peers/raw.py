"""A raw SMB 3.1.1 client: the caller chooses every byte of a request's body and sees every byte of an answer.

It can log on and sign; the meaning of commands is left to the caller.  Needs pyspnego and
cryptography, which come with smbprotocol.
"""

import hashlib
import socket
import struct

import spnego
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFHMAC, CounterLocation, Mode

(
    NEGOTIATE,
    SESSION_SETUP,
    LOGOFF,
    TREE_CONNECT,
    TREE_DISCONNECT,
    CREATE,
    CLOSE,
    FLUSH,
    READ,
    WRITE,
    LOCK,
    IOCTL,
    CANCEL,
    ECHO,
    QUERY_DIRECTORY,
    CHANGE_NOTIFY,
    QUERY_INFO,
    SET_INFO,
    OPLOCK_BREAK,
) = range(19)

SUCCESS, PENDING, MORE_PROCESSING = 0, 0x103, 0xC0000016
RELATED = b"\xff" * 16  # the FileId of the preceding request in a compound

SIGNED, RELATED_OPERATIONS, ASYNC = 8, 4, 2


class Refused(Exception):
    """An answer with a status that the caller did not expect."""

    def __init__(self, command, status):
        super().__init__(f"command {command}: status {status:#010x}")
        self.status = status


class Answer:
    """One response: the fields of its header, and its body."""

    def __init__(self, message):
        self.message = message
        (self.status, self.command, self.credits, self.flags) = struct.unpack_from("<IHHI", message, 8)
        self.message_id = struct.unpack_from("<Q", message, 24)[0]
        self.async_id = struct.unpack_from("<Q", message, 32)[0] if self.flags & ASYNC else 0
        self.tree_id = struct.unpack_from("<I", message, 36)[0]
        self.session_id = struct.unpack_from("<Q", message, 40)[0]
        self.body = message[64:]

    def buffer(self):
        """Returns the data of QUERY_INFO, QUERY_DIRECTORY, CHANGE_NOTIFY and READ."""
        offset = self.body[2] if self.command == READ else struct.unpack_from("<H", self.body, 2)[0]
        length = struct.unpack_from("<I", self.body, 4)[0]
        return self.message[offset : offset + length] if length else b""

    def must(self, *statuses):
        """Returns this answer if its status is one of `statuses`, by default success; raises Refused otherwise."""
        if self.status not in (statuses or (SUCCESS,)):
            raise Refused(self.command, self.status)
        return self


class Client:
    """A connection with one session."""

    # Capabilities that the client announces: bits of SMB2_GLOBAL_CAP.
    capabilities = 0x46

    def __init__(self, address, port, user, password, client_guid=None, timeout=30):
        self.address = address
        self.socket = socket.create_connection((address, port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.next_id, self.credits, self.key = 0, 1, None
        self.session_id, self.tree_id, self.answers = 0, 0, {}
        self.hash = bytes(64)
        self.guid = client_guid or bytes(range(1, 17))
        self.negotiate()
        self.log_on(address, user, password)

    def close(self):
        self.socket.close()

    # Methods that send and receive frames.

    def receive_frame(self):
        head = self.exactly(4)
        return self.exactly(struct.unpack(">I", head)[0] & 0xFFFFFF)

    def exactly(self, count):
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionResetError(f"{self.address} ended the connection")
            data += piece
        return bytes(data)

    def send_frame(self, frame):
        self.socket.sendall(struct.pack(">I", len(frame)) + frame)

    def header(self, command, charge, flags, message_id, tree_id, session_id):
        return struct.pack(
            "<4sHHIHHIIQIIQ16s",
            b"\xfeSMB",
            64,
            charge,
            0,
            command,
            64 + charge,
            flags,
            0,
            message_id,
            0xFEFF,
            tree_id,
            session_id,
            bytes(16),
        )

    def sign(self, message):
        message = message[:16] + struct.pack("<I", struct.unpack_from("<I", message, 16)[0] | SIGNED) + message[20:]
        mac = CMAC(AES(self.key))
        mac.update(message[:48] + bytes(16) + message[64:])
        return message[:48] + mac.finalize() + message[64:]

    # Methods that send requests and await answers.

    def send(self, command, body, charge=1, tree_id=None, session_id=None, flags=0):
        """Sends one request and returns its MessageId."""
        return self.send_compound([(command, body, flags)], charge, tree_id, session_id)[0]

    def send_compound(self, elements, charge=1, tree_id=None, session_id=None):
        """Sends [(command, body, flags)] in one frame; returns their MessageIds."""
        ids, frame = [], b""
        for index, (command, body, flags) in enumerate(elements):
            message = (
                self.header(
                    command,
                    charge,
                    flags,
                    self.next_id,
                    self.tree_id if tree_id is None else tree_id,
                    self.session_id if session_id is None else session_id,
                )
                + body
            )
            ids.append(self.next_id)
            self.next_id += charge
            if index + 1 < len(elements):
                message += bytes(-len(message) % 8)
                message = message[:20] + struct.pack("<I", len(message)) + message[24:]
            frame += self.sign(message) if self.key else message
        self.send_frame(frame)
        return ids

    def cancel(self, message_id, async_id=0):
        """Sends a CANCEL, which uses up no MessageId and has no answer."""
        header = self.header(CANCEL, 0, ASYNC if async_id else 0, message_id, self.tree_id, self.session_id)
        if async_id:
            header = header[:32] + struct.pack("<Q", async_id) + header[40:]
        self.send_frame(self.sign(header + struct.pack("<HH", 4, 0)))

    def read_answers(self):
        """Receives one frame and files its answers by MessageId."""
        frame = self.receive_frame()
        while frame:
            following = struct.unpack_from("<I", frame, 20)[0]
            answer = Answer(frame[:following] if following else frame)
            self.answers.setdefault(answer.message_id, []).append(answer)
            frame = frame[following:] if following else b""

    def await_answer(self, message_id, final=True):
        """Waits for the answer to a request; skips the interim response unless `final` is false."""
        while True:
            for answer in self.answers.get(message_id, []):
                if not (final and answer.status == PENDING and answer.flags & ASYNC):
                    self.answers[message_id].remove(answer)
                    return answer
            self.read_answers()

    def call(self, command, body, **more):
        """Sends a request; returns its final answer."""
        return self.await_answer(self.send(command, body, **more))

    # Methods for negotiation and logon.

    def negotiate(self):
        salt = bytes(32)
        context = struct.pack("<HHIHHH", 1, 38, 0, 1, 32, 1) + salt
        body = struct.pack("<HHHHI16sIHH", 36, 1, 1, 0, self.capabilities, self.guid, 104, 1, 0)
        body += struct.pack("<H", 0x0311)
        self.preauthenticated(NEGOTIATE, body + bytes(-len(body) % 8) + context)

    def preauthenticated(self, command, body):
        """Sends a request that enters the pre-authentication hash, as its answer does, except the last one."""
        message = self.header(command, 0 if command == NEGOTIATE else 1, 0, self.next_id, 0, self.session_id) + body
        self.next_id += 1
        self.send_frame(message)
        self.hash = hashlib.sha512(self.hash + message).digest()
        frame = self.receive_frame()
        answer = Answer(frame)
        if answer.status in (SUCCESS, MORE_PROCESSING) and not (command == SESSION_SETUP and answer.status == SUCCESS):
            self.hash = hashlib.sha512(self.hash + frame).digest()
        return answer.must(SUCCESS, MORE_PROCESSING)

    def log_on(self, address, user, password):
        tokens = spnego.client(
            user, password, hostname=address, service="cifs", protocol="ntlm", options=spnego.NegotiateOptions.use_ntlm
        )
        incoming = None
        while True:
            token = tokens.step(incoming)
            body = struct.pack("<HBBIIHHQ", 25, 0, 1, 0, 0, 88, len(token), 0) + token
            answer = self.preauthenticated(SESSION_SETUP, body)
            self.session_id = answer.session_id
            offset, length = struct.unpack_from("<HH", answer.body, 4)
            incoming = answer.message[offset : offset + length]
            if answer.status == SUCCESS:
                break
        self.key = KBKDFHMAC(
            SHA256(), Mode.CounterMode, 16, 4, 4, CounterLocation.BeforeFixed, b"SMBSigningKey\0", self.hash, None
        ).derive(tokens.session_key[:16])

    def tree_connect(self, address, share):
        path = f"\\\\{address}\\{share}".encode("utf-16-le")
        answer = self.call(TREE_CONNECT, struct.pack("<HHHH", 9, 0, 72, len(path)) + path, tree_id=0).must()
        self.tree_id = answer.tree_id
        return answer.tree_id


# Functions that build well-formed bodies of requests.


def create_body(name, access=0x0012019F, disposition=3, options=0, share=7, attributes=0, oplock=0, contexts=()):
    """Returns a CREATE; `contexts` is [(tag, data)]."""
    path = name.encode("utf-16-le") if isinstance(name, str) else name
    tail = path + bytes(-len(path) % 8) if path else bytes(8)
    blob = b""
    for index, (tag, data) in enumerate(contexts):
        offset = 16 + len(tag) + -len(tag) % 8
        one = struct.pack("<IHHHHI", 0, 16, len(tag), 0, offset if data else 0, len(data)) + tag
        one += bytes(-len(one) % 8) + data
        if index + 1 < len(contexts):
            one += bytes(-len(one) % 8)
            one = struct.pack("<I", len(one)) + one[4:]
        blob += one
    return (
        struct.pack(
            "<HBBIQQIIIIIHHII",
            57,
            0,
            oplock,
            2,
            0,
            0,
            access,
            attributes,
            share,
            disposition,
            options,
            120,
            len(path),
            120 + len(tail) if blob else 0,
            len(blob),
        )
        + tail
        + blob
    )


def close_body(file, flags=0):
    return struct.pack("<HHI", 24, flags, 0) + file


def query_body(file, kind, level, length=65536, additional=0, flags=0, data=b""):
    """Returns a QUERY_INFO; `kind` is 1 file, 2 file system, 3 security, 4 quota."""
    return (
        struct.pack("<HBBIHHIII", 41, kind, level, length, 104 if data else 0, 0, len(data), additional, flags)
        + file
        + data
    )


def set_body(file, kind, level, data, additional=0):
    return struct.pack("<HBBIHHI", 33, kind, level, len(data), 96, 0, additional) + file + data


def directory_body(file, level, pattern="*", flags=0, index=0, length=65536):
    path = pattern.encode("utf-16-le") if isinstance(pattern, str) else pattern
    return struct.pack("<HBBI", 33, level, flags, index) + file + struct.pack("<HHI", 96, len(path), length) + path


def read_body(file, offset, length, minimum=0):
    return struct.pack("<HBBIQ", 49, 80, 0, length, offset) + file + struct.pack("<IIIHHB", minimum, 0, 0, 0, 0, 0)


def write_body(file, offset, data, flags=0):
    return struct.pack("<HHIQ", 49, 112, len(data), offset) + file + struct.pack("<IIHHI", 0, 0, 0, 0, flags) + data


def ioctl_body(file, code, data=b"", most=65536, flags=1):
    return (
        struct.pack("<HHI", 57, 0, code)
        + file
        + struct.pack("<IIIIIIII", 120, len(data), 0, 0, 0, most, flags, 0)
        + data
    )


def lock_body(file, locks, sequence=0):
    """Returns a LOCK; `locks` is [(offset, length, flags)]."""
    return (
        struct.pack("<HHI", 48, len(locks), sequence)
        + file
        + b"".join(struct.pack("<QQII", offset, length, flags, 0) for offset, length, flags in locks)
    )


def notify_body(file, flags=0, length=4096, filter=0xFFF):
    return struct.pack("<HHI", 32, flags, length) + file + struct.pack("<II", filter, 0)


def flush_body(file):
    return struct.pack("<HHI", 24, 0, 0) + file


class Tree:
    """A client in a share, whose methods return results instead of answers."""

    def __init__(self, address, port, user, password, share):
        self.client = Client(address, port, user, password)
        self.client.tree_connect(address, share)

    def open(self, name, **more):
        """Returns the FileId."""
        return self.client.call(CREATE, create_body(name, **more)).must().body[64:80]

    def close(self, file):
        self.client.call(CLOSE, close_body(file)).must()

    def query(self, file, kind, level, additional=0, empty=()):
        """Returns the data of QUERY_INFO, or no bytes for a status in `empty`."""
        answer = self.client.call(QUERY_INFO, query_body(file, kind, level, additional=additional))
        return b"" if answer.status in empty else answer.must().buffer()

    def set(self, file, kind, level, data, additional=0):
        self.client.call(SET_INFO, set_body(file, kind, level, data, additional)).must()

    def read(self, file, length=65536):
        """Reads from the beginning; returns no bytes of an empty file."""
        answer = self.client.call(READ, read_body(file, 0, length))
        return b"" if answer.status == 0xC0000011 else answer.must().buffer()

    def write(self, file, data):
        self.client.call(WRITE, write_body(file, 0, data)).must()

    def list(self, name):
        """Returns the names in a directory, without `.` and `..`."""
        file, names, flags = self.open(name, access=0x100081, options=1), [], 1
        while True:
            answer = self.client.call(QUERY_DIRECTORY, directory_body(file, 12, flags=flags))
            if answer.status == 0x80000006:
                break
            for entry in chained(answer.must().buffer()):
                names.append(entry[12 : 12 + struct.unpack_from("<I", entry, 8)[0]].decode("utf-16-le"))
            flags = 0
        self.close(file)
        return sorted(n for n in names if n not in (".", ".."))


def chained(data):
    """Yields the entries of a list in which each begins with the offset of the next."""
    while data:
        step = struct.unpack_from("<I", data)[0]
        yield data[:step] if step else data
        data = data[step:] if step else b""
