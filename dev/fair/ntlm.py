"""The client's half of a logon by NTLM, MS-NLMP, without SPNEGO around it: as short as it may be, so that thousands
of logons take the time of the server and not that of the attacker."""

import hmac
import os
import struct

#: The hashes of the accounts' passwords, MS-NLMP 3.3.1: those of PASSWORDS in client.py.
HASHES = {
    "ann": bytes.fromhex("ac157b961a380697c1bd1ffc4791b42c"),
    "bob": bytes.fromhex("9b479866ba0cd56c62c95ab0d185cc7f"),
}
#: Unicode, signing, sealing, NTLM, extended session security, target information, version, 128 bits, and a key of the
#: client's own: MS-NLMP 2.2.2.5.
FLAGS = 0x62888235
VERSION = bytes.fromhex("0a0000000000000f")
END, MESSAGE_FLAGS, TIMESTAMP, TARGET = 0, 6, 7, 9
#: The value of MESSAGE_FLAGS for a message with an integrity code.
HAS_CODE = struct.pack("<I", 2)


def keyed(key, *parts):
    return hmac.digest(key, b"".join(parts), "md5")


def rc4(key, data):
    box, at = list(range(256)), 0
    for number in range(256):
        at = (at + box[number] + key[number % len(key)]) & 255
        box[number], box[at] = box[at], box[number]
    out, at = bytearray(), 0
    for number, byte in enumerate(data, 1):
        number &= 255
        at = (at + box[number]) & 255
        box[number], box[at] = box[at], box[number]
        out.append(byte ^ box[(box[number] + box[at]) & 255])
    return bytes(out)


def target_pairs(information):
    """Yields the AV_PAIRs of a challenge, without the last one: MS-NLMP 2.2.2.1."""
    while len(information) >= 4:
        kind, length = struct.unpack_from("<HH", information)
        if kind == END:
            return
        yield kind, information[4 : 4 + length]
        information = information[4 + length :]


class Logon:
    """One logon: `step()` gives the first token, `step(challenge)` the second. `key` is the session's key then."""

    def __init__(self, user, secret=None):
        self.user, self.secret, self.key = user.encode("utf-16-le"), secret or HASHES[user], b""
        self.first = b"NTLMSSP\0" + struct.pack("<II", 1, FLAGS) + bytes(16) + VERSION

    def step(self, challenge=b""):
        if not challenge:
            return self.first
        length, _, offset = struct.unpack_from("<HHI", challenge, 40)
        pairs = list(target_pairs(challenge[offset : offset + length]))
        time = dict(pairs).get(TIMESTAMP, bytes(8))
        pairs += [(MESSAGE_FLAGS, HAS_CODE), (TARGET, "cifs/127.0.0.1".encode("utf-16-le"))]
        information = b"".join(struct.pack("<HH", kind, len(value)) + value for kind, value in pairs) + bytes(4)
        owner = keyed(self.secret, self.user.decode("utf-16-le").upper().encode("utf-16-le"))
        blob = b"\1\1" + bytes(6) + time + os.urandom(8) + bytes(4) + information + bytes(4)
        proof = keyed(owner, challenge[24:32], blob)
        base, self.key = keyed(owner, proof), os.urandom(16)
        message = self.authenticate(proof + blob, rc4(base, self.key))
        code = keyed(self.key, self.first, challenge, message)
        return message[:72] + code + message[88:]

    def authenticate(self, answer, key):
        """The third message, MS-NLMP 2.2.1.3, with room for its integrity code."""
        fields, payload = b"", b""
        for value in (bytes(24), answer, b"", self.user, b"", key):
            fields += struct.pack("<HHI", len(value), len(value), 88 + len(payload))
            payload += value
        return b"NTLMSSP\0" + struct.pack("<I", 3) + fields + struct.pack("<I", FLAGS) + VERSION + bytes(16) + payload
