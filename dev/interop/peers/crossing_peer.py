"""Fills a folder over SMB, tells what a server shows of it, or changes it: for folders that two servers serve in turn.

    crossing_peer.py write|change|facts FILE
    crossing_peer.py audit|reaudit|unprivileged|audits FILE

`facts` writes JSON, {facet: {name: value}}; what a server refuses to tell is a value that begins with "error".
`write` and `change` print a line per facet.  `audit` sets system access control lists and `reaudit` changes them, for
which the user needs SeSecurityPrivilege, `audits` tells them, and `unprivileged` is refused all of it.
The server and the share come from the environment, SMB_*.
"""

import json
import os
import struct
import sys

from raw import Refused, Tree, chained
from report import check, pattern

# An AFP_AfpInfo record as macOS writes it, with Finder information. Without Finder information a
# record counts as absent: smbd with vfs_fruit removes it on write, Frevo does not list it, and smbd
# without vfs_fruit keeps it like any stream.
AFP_INFO = b"AFP\0" + bytes.fromhex("00010000 00000000 80000000") + b"TEXTttxt" + bytes(24) + bytes(12)
assert len(AFP_INFO) == 60

FILE, SECURITY = 1, 3
BASIC, STREAMS, EAS = 4, 22, 15
NO_EAS = (0xC0000052,)  # STATUS_NO_EAS_ON_FILE
DACL = 4
READ, WRITE_ALL = 0x00120089, 0x001301BF  # read; all rights except ownership
READONLY, HIDDEN, SYSTEM, DIRECTORY, ARCHIVE = 1, 2, 4, 0x10, 0x20

ATTRIBUTES = {
    "hidden": HIDDEN,
    "system": SYSTEM,
    "archive": ARCHIVE,
    "all four.txt": READONLY | HIDDEN | SYSTEM | ARCHIVE,
    "read only": READONLY,
    "normal": 0x80,
    "hidden folder": HIDDEN | DIRECTORY,
}
STREAMED = {
    "streamed.txt": {
        "first": b"one",
        "Zweiter Ström": pattern(1000),
        "empty": b"",
        "long": pattern(30_000),
        "Zone.Identifier": b"[ZoneTransfer]\r\nZoneId=3\r\n",
        "AFP_AfpInfo": AFP_INFO,
    },
    "streamed folder": {"of a folder": b"two"},
}
WITH_EAS = {"with eas.txt": {b"ONE": b"value", b"TWO": bytes(range(200))}, "folder with eas": {b"THREE": b"3"}}
NAMES = ["MiXeD.TXT", "äöü", "cafe\u0301", "語" * 80, "emoji 🦀", ".dot", "trailing\u00a0", "comma,+=[]"]
# Times in the past with an odd fraction, in 100 ns since 1601.
BORN, WRITTEN = 126_227_808_001_234_567, 127_000_000_007_654_321

EVERYONE, AUTHENTICATED, OWNER, CREATOR, USERS = (
    bytes([1, 1]) + bytes([0, 0, 0, 0, 0, 1]) + struct.pack("<I", 0),
    bytes([1, 1]) + bytes([0, 0, 0, 0, 0, 5]) + struct.pack("<I", 11),
    bytes([1, 1]) + bytes([0, 0, 0, 0, 0, 3]) + struct.pack("<I", 4),
    bytes([1, 1]) + bytes([0, 0, 0, 0, 0, 3]) + struct.pack("<I", 0),
    bytes([1, 2]) + bytes([0, 0, 0, 0, 0, 5]) + struct.pack("<II", 32, 545),
)
PROTECTED, PRESENT, SELF_RELATIVE = 0x1000, 4, 0x8000


def descriptor(*aces, control=0):
    """Returns a security descriptor with only a DACL; an entry is (type, flags, mask, sid)."""
    acl = b"".join(struct.pack("<BBHI", kind, flags, 8 + len(sid), mask) + sid for kind, flags, mask, sid in aces)
    acl = struct.pack("<BBHHH", 2, 0, 8 + len(acl), len(aces), 0) + acl
    return struct.pack("<BBHIIII", 1, 0, SELF_RELATIVE | PRESENT | control, 0, 0, 0, 20) + acl


DACLS = {
    "guarded.txt": descriptor((0, 0, 0x001F01FF, EVERYONE), (0, 0, READ, AUTHENTICATED), control=PROTECTED),
    "denied.txt": descriptor((1, 0, 0x10, USERS), (0, 0, 0x001F01FF, EVERYONE), control=PROTECTED),
    "guarded folder": descriptor(
        (0, 3, 0x001F01FF, EVERYONE), (0, 0xB, 0x10000000, CREATOR), (0, 1, READ, AUTHENTICATED), control=PROTECTED
    ),
}


SACL, SYSTEM_SECURITY, SACL_PRESENT = 8, 0x01000000, 0x10
SUCCESS, FAILURE, HEIRS = 0x40, 0x80, 3


def audit_list(*aces):
    """Returns a security descriptor with only a SACL; an entry is (flags, mask, sid)."""
    acl = b"".join(struct.pack("<BBHI", 2, flags, 8 + len(sid), mask) + sid for flags, mask, sid in aces)
    acl = struct.pack("<BBHHH", 2, 0, 8 + len(acl), len(aces), 0) + acl
    return struct.pack("<BBHIIII", 1, 0, SELF_RELATIVE | SACL_PRESENT, 0, 0, 20, 0) + acl


AUDITS = {
    "audited.txt": audit_list((SUCCESS | FAILURE, 0x2, EVERYONE), (FAILURE, 0x001F01FF, USERS)),
    "audited folder": audit_list((SUCCESS | HEIRS, 0x00010000, AUTHENTICATED)),
}


def audit(smb, lists):
    """Sets these lists, on files and on a folder with inheriting children."""
    for name, wanted in lists.items():
        with check("audit-" + name.replace(" ", "-")):
            smb.close(make(smb, name, folder="folder" in name))
            file = smb.open(name, access=SYSTEM_SECURITY | 0x00060080, options=0, disposition=1)
            smb.set(file, SECURITY, 0, wanted, additional=SACL)
            smb.close(file)
            if "folder" in name:
                smb.close(make(smb, name + "\\heir.txt"))


def audits(smb):
    """Returns {name: SACL entries in hexadecimal}."""
    told = {}
    for name in [*AUDITS, "audited folder\\heir.txt"]:
        file = smb.open(name, access=SYSTEM_SECURITY | 0x00020080, options=0, disposition=1)
        data = smb.query(file, SECURITY, 0, additional=SACL)
        offset, told[name] = struct.unpack_from("<I", data, 12)[0], []
        for _ in range(struct.unpack_from("<H", data, offset + 4)[0] if offset else 0):
            at = offset + 8 + sum(len(entry) // 2 for entry in told[name])
            told[name].append(data[at : at + struct.unpack_from("<H", data, at + 2)[0]].hex())
        smb.close(file)
    return {"audits": told}


def unprivileged(smb):
    """Without the privilege no handle gets ACCESS_SYSTEM_SECURITY, and without it the SACL is not shown."""
    with check("unprivileged"):
        for name in AUDITS:
            try:
                smb.open(name, access=SYSTEM_SECURITY | 0x00020080, options=0, disposition=1)
                raise AssertionError(f"{name}: opened")
            except Refused as refused:
                assert refused.status in (0xC0000061, 0xC0000022), hex(refused.status)
            file = smb.open(name, access=0x00020080, options=0, disposition=1)
            try:
                smb.query(file, SECURITY, 0, additional=SACL)
                raise AssertionError(f"{name}: told")
            except Refused as refused:
                assert refused.status == 0xC0000022, hex(refused.status)
            smb.close(file)


def tree():
    return Tree(
        *(os.environ["SMB_" + k] for k in ("ADDR",)),
        int(os.environ["SMB_PORT"]),
        os.environ["SMB_USER"],
        os.environ["SMB_PASS"],
        os.environ["SMB_SHARE"],
    )


def make(smb, name, data=b"", folder=False):
    file = smb.open(name, access=WRITE_ALL, disposition=3 if folder else 5, options=1 if folder else 0x40)
    if data:
        smb.write(file, data)
    return file


def write(smb):
    with check("write-names"):
        for name in NAMES:
            smb.close(make(smb, name, name.encode()))
        smb.close(make(smb, "big.bin", pattern(50_000)))
    with check("write-attributes"):
        for name, attributes in ATTRIBUTES.items():
            file = make(smb, name, folder=bool(attributes & DIRECTORY))
            smb.set(file, FILE, BASIC, struct.pack("<QQQQII", 0, 0, 0, 0, attributes, 0))
            smb.close(file)
    with check("write-times"):
        for name in ("old.txt", "old folder"):
            file = make(smb, name, folder="folder" in name)
            smb.set(file, FILE, BASIC, struct.pack("<QQQQII", BORN, 0, WRITTEN, 0, 0, 0))
            smb.close(file)
    with check("write-streams"):
        for name, streams in STREAMED.items():
            smb.close(make(smb, name, folder="folder" in name))
            for stream, data in streams.items():
                smb.close(make(smb, f"{name}:{stream}", data))
    with check("write-eas"):
        for name, eas in WITH_EAS.items():
            file = make(smb, name, folder="folder" in name)
            for key, value in eas.items():
                smb.set(file, FILE, EAS, struct.pack("<IBBH", 0, 0, len(key), len(value)) + key + b"\0" + value)
            smb.close(file)
    with check("write-dacls"):
        for name, dacl in DACLS.items():
            smb.close(make(smb, name, folder="folder" in name))
            file = smb.open(name, access=0x00060080, options=0, disposition=1)
            smb.set(file, SECURITY, 0, dacl, additional=DACL)
            smb.close(file)
        smb.close(make(smb, "guarded folder\\heir.txt"))
        smb.close(make(smb, "guarded folder\\heir folder", folder=True))


def change(smb):
    """Changes the files that the other server has written."""
    with check("change-names"):
        file = smb.open("mixed.txt", access=0x00110080, disposition=1)
        target = "renamed.txt".encode("utf-16-le")
        smb.set(file, FILE, 10, struct.pack("<B7xQI", 0, 0, len(target)) + target)
        smb.close(file)
    with check("change-attributes"):
        for name, attributes in {"hidden": SYSTEM | ARCHIVE, "read only": 0x80, "hidden folder": DIRECTORY}.items():
            file = smb.open(name, access=0x00000180, disposition=1)
            smb.set(file, FILE, BASIC, struct.pack("<QQQQII", 0, 0, 0, 0, attributes, 0))
            smb.close(file)
    with check("change-streams"):
        file = smb.open("streamed.txt:FIRST", disposition=1)
        smb.write(file, b"changed by the other")
        smb.close(file)
        file = smb.open("streamed.txt:long", access=0x00010080, disposition=1, options=0x1000)
        smb.close(file)
        smb.close(make(smb, "streamed.txt:third", b"3"))
    with check("change-eas"):
        file = smb.open("with eas.txt", disposition=1)
        smb.set(file, FILE, EAS, struct.pack("<IBBH", 0, 0, 3, 0) + b"ONE\0")
        smb.set(file, FILE, EAS, struct.pack("<IBBH", 0, 0, 4, 1) + b"FOUR\0" + b"4")
        smb.close(file)
    with check("change-dacls"):
        file = smb.open("guarded.txt", access=0x00060080, disposition=1)
        smb.set(file, SECURITY, 0, descriptor((0, 0, 0x001F01FF, EVERYONE), control=PROTECTED), additional=DACL)
        smb.close(file)


def tell(into, name, what):
    try:
        into[name] = what()
    except Exception as e:
        into[name] = f"error: {e}"


def stream_names(smb, file):
    names = {}
    for entry in chained(smb.query(file, FILE, STREAMS)):
        length, size = struct.unpack_from("<IQ", entry, 4)
        names[entry[24 : 24 + length].decode("utf-16-le")] = size
    return names


def stream_data(smb, name):
    file = smb.open(name, access=READ, disposition=1)
    data = smb.read(file)
    smb.close(file)
    return data.hex()


def eas(smb, file):
    found = {}
    for entry in chained(smb.query(file, FILE, EAS, empty=NO_EAS)):
        name, value = struct.unpack_from("<BH", entry, 5)
        found[entry[8 : 8 + name].decode()] = entry[9 + name : 9 + name + value].hex()
    return found


def dacl(smb, file):
    """Returns the control bits of the DACL and its entries."""
    data = smb.query(file, SECURITY, 0, additional=DACL)
    control, offset = struct.unpack_from("<H", data, 2)[0], struct.unpack_from("<I", data, 16)[0]
    size, count = struct.unpack_from("<HH", data, offset + 2)
    entries, at = [], offset + 8
    for _ in range(count):
        length = struct.unpack_from("<H", data, at + 2)[0]
        entries.append(data[at : at + length].hex())
        at += length
    return [f"{control & 0x1504:#x}", *entries]


def owners(smb, file):
    """Returns owner and group as stored."""
    data = smb.query(file, SECURITY, 0, additional=3)
    return [data[at : at + 8 + 4 * data[at + 1]].hex() for at in struct.unpack_from("<II", data, 4)]


def facts(smb):
    told = {
        f: {}
        for f in (
            "names",
            "data",
            "attributes",
            "creation-times",
            "write-times",
            "streams",
            "stream-data",
            "eas",
            "dacls",
            "owners",
        )
    }
    pending = [""]
    while pending:
        folder = pending.pop()
        names = smb.list(folder)
        told["names"][folder] = names
        for name in names:
            path = f"{folder}\\{name}" if folder else name
            file = smb.open(path, access=0x00020089, disposition=1)
            basic = struct.unpack("<QQQQI", smb.query(file, FILE, BASIC)[:36])
            told["attributes"][path] = basic[4]
            if name.startswith("old"):
                told["creation-times"][path], told["write-times"][path] = basic[0], basic[2]
            tell(told["streams"], path, lambda file=file: stream_names(smb, file))
            if isinstance(told["streams"][path], dict):
                for stream in told["streams"][path]:
                    if stream != "::$DATA":
                        name = path + stream
                        tell(told["stream-data"], name, lambda name=name: stream_data(smb, name))
            tell(told["eas"], path, lambda file=file: eas(smb, file))
            if path in DACLS or "heir" in path:
                tell(told["dacls"], path, lambda file=file: dacl(smb, file))
                tell(told["owners"], path, lambda file=file: owners(smb, file))
            if basic[4] & DIRECTORY:
                pending.append(path)
            else:
                tell(told["data"], path, lambda file=file: smb.read(file).hex())
            smb.close(file)
    return told


if __name__ == "__main__":
    told = {"facts": facts, "audits": audits}
    if sys.argv[1] in told:
        with open(sys.argv[2], "w") as f:
            json.dump(told[sys.argv[1]](tree()), f)
    else:
        CHANGED = {"audited.txt": audit_list((SUCCESS, 0x1, AUTHENTICATED)), "audited folder": audit_list()}
        {
            "write": write,
            "change": change,
            "unprivileged": unprivileged,
            "audit": lambda smb: audit(smb, AUDITS),
            "reaudit": lambda smb: audit(smb, CHANGED),
        }[sys.argv[1]](tree())
