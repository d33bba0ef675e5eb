"""The same seeded requests for referrals to two servers that have the same namespaces; the differences as JSON.

dfs_referrals_peer.py ADDRESS OTHER NAMESPACES SEED COUNT FILE: NAMESPACES has {name: {link: [target, ...]}}.
"""

import json
import os
import random
import struct
import sys
from pathlib import Path

import raw

HOST = "host"
REFERRALS, REFERRALS_EX = 0x00060194, 0x000601B0
NAMES = {
    0: "OK",
    0x80000005: "BUFFER_OVERFLOW",
    0xC0000004: "INFO_LENGTH_MISMATCH",
    0xC000000D: "INVALID_PARAMETER",
    0xC0000010: "INVALID_DEVICE_REQUEST",
    0xC0000023: "BUFFER_TOO_SMALL",
    0xC0000034: "OBJECT_NAME_NOT_FOUND",
    0xC000003A: "OBJECT_PATH_NOT_FOUND",
    0xC0000033: "OBJECT_NAME_INVALID",
    0xC00000BB: "NOT_SUPPORTED",
    0xC000019C: "FS_DRIVER_REQUIRED",
    0xC0000225: "NOT_FOUND",
    0xC000026D: "DFS_UNAVAILABLE",
    0xC000009A: "INSUFFICIENT_RESOURCES",
}


def status_name(status):
    return NAMES.get(status, f"{status:#x}")


def any_case(choose, text):
    return "".join(choose.choice((c.lower(), c.upper())) if len(c.lower()) == len(c.upper()) == 1 else c for c in text)


def asked_path(choose, namespaces):
    """Returns (kind, path) of a request; HOST stands for the server's address."""
    name = choose.choice(list(namespaces))
    links = namespaces[name]
    link = choose.choice(list(links))
    folder = link.rsplit("\\", 1)[0] if "\\" in link else ""
    root = f"\\{HOST}\\{name}"
    kinds = {
        "root": lambda: root,
        "link": lambda: f"{root}\\{link}",
        "link-in-other-case": lambda: f"{root}\\{any_case(choose, link)}",
        "root-in-other-case": lambda: f"\\{HOST}\\{any_case(choose, name)}",
        "below-a-link": lambda: f"{root}\\{link}\\" + "\\".join(choose.choices(["a", "Ä b", "日本", "x.y"], k=3)),
        "folder-above-a-link": lambda: f"{root}\\{folder}" if folder else root,
        "nothing": lambda: f"{root}\\nothing\\{choose.randrange(9)}",
        "longer-name-than-a-link": lambda: f"{root}\\{link}x",
        "other-host": lambda: f"\\{choose.choice(['other.example.com', '192.0.2.7', 'x'])}\\{name}\\{link}",
        "separator-at-the-end": lambda: f"{root}\\{link}\\",
        "two-separators-first": lambda: f"\\{root}\\{link}",
        "no-separator-first": lambda: f"{root}\\{link}"[1:],
        "doubled-separator": lambda: f"{root}\\\\{link}",
        "unknown-namespace": lambda: f"\\{HOST}\\absent\\x",
        "sysvol": lambda: "\\example.com\\" + choose.choice(["SYSVOL", "NETLOGON"]),
        "domains": lambda: "",
        "one-component": lambda: f"\\{HOST}",
    }
    weights = [4 if kind in ("root", "link", "below-a-link", "link-in-other-case") else 1 for kind in kinds]
    kind = choose.choices(list(kinds), weights)[0]
    return kind, kinds[kind]()


def request(choose, namespaces):
    """Returns (kind, level, most bytes of output, path, site), with a site for REQ_GET_DFS_REFERRAL_EX, "" for none."""
    kind, path = asked_path(choose, namespaces)
    level = choose.choices([1, 2, 3, 4, 0, 5, 0xFFFF], [3, 3, 5, 8, 1, 1, 1])[0]
    most = choose.choices([65536, choose.randrange(8, 300)], [9, 1])[0]
    if level == 0:
        kind = "level-0"
    if choose.random() < 0.2:
        return "ex", level, most, path, choose.choice(["", "Site"])
    return kind, level, most, path, None


def encoded(level, path, site):
    """Returns the control code and the input of a request: MS-DFSC 2.2.2, 2.2.3."""
    text = path.encode("utf-16-le")
    if site is None:
        return REFERRALS, struct.pack("<H", level) + text + b"\0\0"
    data = struct.pack("<H", len(text)) + text
    if site:
        data += struct.pack("<H", 2 * len(site)) + site.encode("utf-16-le")
    return REFERRALS_EX, struct.pack("<HHI", level, bool(site), len(data)) + data


def text_at(data, at):
    end = at
    while data[end : end + 2] not in (b"\0\0", b""):
        end += 2
    return data[at:end].decode("utf-16-le", errors="replace")


def parsed(data):
    """Returns the fields of a response: MS-DFSC 2.2.4, 2.2.5."""
    consumed, count, flags = struct.unpack_from("<HHI", data)
    entries, at = [], 8
    for _ in range(count):
        version, size, kind, entry_flags = struct.unpack_from("<HHHH", data, at)
        entry = {"version": version, "ServerType": kind, "entry-flags": entry_flags}
        if version == 1:
            entry["target"] = text_at(data, at + 8)
        else:
            skip = 4 if version == 2 else 0
            ttl, path, other, target = struct.unpack_from("<IHHH", data, at + 8 + skip)
            entry |= {"TimeToLive": ttl, "DFSPath": text_at(data, at + path)}
            entry |= {"AlternatePath": text_at(data, at + other), "target": text_at(data, at + target)}
            entry["rest"] = data[at + 18 + skip : at + size].hex()
        entries.append(entry)
        at += size
    return {"PathConsumed": consumed, "header-flags": flags}, entries


def kinds_of_difference(kind, answers):
    (status, data), (other_status, other) = answers
    if status != other_status:
        return [f"{kind}: {status_name(status)}, smbd {status_name(other_status)}"]
    if data == other or status:
        return [] if data == other else [f"{kind}: data with {status_name(status)}"]
    (head, entries), (other_head, others) = parsed(data), parsed(other)
    found = []
    for name in head:
        if head[name] != other_head[name]:
            values = f" {head[name]:#x}, smbd {other_head[name]:#x}" if name == "header-flags" else ""
            found.append(f"{kind}: {name}{values}")
    if len(entries) != len(others):
        return [*found, f"{kind}: NumberOfReferrals"]
    for name in entries[0] if entries else ():
        if [one.get(name) for one in entries] != [one.get(name) for one in others]:
            is_told = name in ("version", "TimeToLive", "entry-flags")
            values = f" {entries[0][name]}, smbd {others[0].get(name)}" if is_told else ""
            found.append(f"{kind}: {name}{values}")
    return found or [f"{kind}: the same fields in other places"]


address, other, names, seed, count, to = sys.argv[1:]
namespaces = json.loads(Path(names).read_text())
user, password = os.environ["SMB_USER"], os.environ["SMB_PASS"]
clients = [raw.Client(host, 445, user, password) for host in (address, other)]
for client in clients:
    client.tree_connect(client.address, "IPC$")
choose, differences, equal, answered = random.Random(int(seed)), {}, 0, 0
for number in range(int(count)):
    kind, level, most, path, site = request(choose, namespaces)
    answers = []
    for client in clients:
        code, data = encoded(level, path.replace(HOST, client.address), site)
        answer = client.call(raw.IOCTL, raw.ioctl_body(b"\xff" * 16, code, data, most=most))
        offset, length = struct.unpack_from("<II", answer.body, 32) if len(answer.body) > 40 else (0, 0)
        told = answer.message[offset : offset + length] if length else b""
        # The addresses have the same length.
        told = told.replace(client.address.encode("utf-16-le"), address.encode("utf-16-le"))
        answers.append((answer.status, told))
    if most != 65536 and 0x80000005 in (answers[0][0], answers[1][0]):
        kind = "little-room"
    kinds = kinds_of_difference(kind, answers)
    equal += not kinds
    answered += answers[0][0] == 0
    for one in kinds:
        entry = differences.setdefault(one, [0, ""])
        entry[0] += 1
        shown = [f"{status_name(status)} {body.hex()}" for status, body in answers]
        entry[1] = entry[1] or f"request {number}: level {level}, room {most}, {path!r}: {shown[0]} | {shown[1]}"
with open(to, "w") as file:
    json.dump({"requests": int(count), "equal": equal, "answered": answered, "differences": differences}, file)
