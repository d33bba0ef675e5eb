"""NTLMv2 messages, byte by byte (MS-NLMP 2.2.1): each field of AUTHENTICATE can be replaced."""

import hashlib
import hmac
import os
import struct

from impacket.ntlm import compute_nthash

UNICODE, NTLM, ALWAYS_SIGN, EXTENDED, TARGET_INFO = 0x1, 0x200, 0x8000, 0x80000, 0x800000
KEY_128, KEY_EXCHANGE = 0x20000000, 0x40000000
FLAGS = UNICODE | 4 | 0x10 | NTLM | ALWAYS_SIGN | EXTENDED | TARGET_INFO | KEY_128 | KEY_EXCHANGE


def negotiate(flags=FLAGS):
    return b"NTLMSSP\0" + struct.pack("<II", 1, flags) + bytes(16)


class Challenge:
    """CHALLENGE_MESSAGE as the server sent it."""

    def __init__(self, message):
        if message[:12] != b"NTLMSSP\0\2\0\0\0":
            raise ValueError("not a CHALLENGE_MESSAGE")
        self.flags = struct.unpack_from("<I", message, 20)[0]
        self.challenge = message[24:32]
        length, _, offset = struct.unpack_from("<HHI", message, 40)
        self.target_info = message[offset : offset + length]
        self.time = None
        info = self.target_info
        while len(info) >= 4:
            kind, size = struct.unpack_from("<HH", info)
            if kind == 7:
                self.time = info[4 : 4 + size]
            info = info[4 + size :]


def nt_hash(password):
    return compute_nthash(password)


def keyed(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.md5).digest()


def rc4(key, data):
    state, at, out = list(range(256)), 0, bytearray()
    for i in range(256):
        at = (at + state[i] + key[i % len(key)]) & 255
        state[i], state[at] = state[at], state[i]
    a = b = 0
    for byte in data:
        a = (a + 1) & 255
        b = (b + state[a]) & 255
        state[a], state[b] = state[b], state[a]
        out.append(byte ^ state[(state[a] + state[b]) & 255])
    return bytes(out)


def authenticate(challenge, user, hashed, domain="", **odd):
    """AUTHENTICATE_MESSAGE and the session key.

    `odd` replaces fields: flags, session_key, lm, nt, proof, temp, workstation, av, or `message`, a function of
    the whole message.
    """
    name, where = user.encode("utf-16-le"), domain.encode("utf-16-le")
    key = keyed(hashed, user.upper().encode("utf-16-le"), where)
    av = odd.get("av", challenge.target_info)
    temp = odd.get("temp", b"\1\1" + bytes(6) + (challenge.time or bytes(8)) + os.urandom(8) + bytes(4) + av + bytes(4))
    proof = keyed(key, challenge.challenge, temp)
    base = keyed(key, proof)
    flags = odd.get("flags", FLAGS & challenge.flags)
    exported, sent = base, b""
    if flags & KEY_EXCHANGE:
        exported = os.urandom(16)
        sent = rc4(base, exported)
    fields = [
        odd.get("lm", bytes(24)),
        odd.get("nt", odd.get("proof", proof) + temp),
        where,
        name,
        odd.get("workstation", b""),
        odd.get("session_key", sent),
    ]
    head, payload = b"NTLMSSP\0" + struct.pack("<I", 3), b""
    for field in fields:
        head += struct.pack("<HHI", len(field), len(field), 88 + len(payload))
        payload += field
    message = head + struct.pack("<I", flags) + bytes(8) + bytes(16) + payload
    return (odd["message"](message) if "message" in odd else message), exported
