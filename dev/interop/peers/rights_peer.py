"""Random access lists, users and desired accesses, judged by two servers of one domain.

rights_peer.py SEED COUNT: for each of COUNT triples the administrator makes a file with the same list
on both servers, and a user opens it on both.  FREVO and SMBD are `ADDRESS:PORT:SHARE`, SIDS the
SIDs of principals by name, as JSON.  The statuses are compared and, after an open with
MAXIMUM_ALLOWED, the granted accesses.  Prints each difference, and at the end the number of triples
and the numbers of opens that were granted and refused.
"""

import json
import os
import random
import struct
import sys

import raw

READ_CONTROL, WRITE_DAC, MAXIMUM_ALLOWED = 0x20000, 0x40000, 0x02000000
# Rights of files (MS-SMB2 2.2.13.1.1) without ACCESS_SYSTEM_SECURITY, which needs a privilege.
RIGHTS = [1 << bit for bit in range(9)] + [1 << bit for bit in range(16, 21)]
GENERIC = [0x80000000, 0x40000000, 0x20000000, 0x10000000]
WORDS = [0x1F01FF, 0x1301BF, 0x1200A9, 0x120116]
USERS = ["alice", "bob", "smbuser", "smbuser2"]
DACL = 4
FOLDER = "rights"


def sid_bytes(text):
    authority, *rest = (int(part) for part in text.split("-")[2:])
    return bytes([1, len(rest)]) + authority.to_bytes(6, "big") + struct.pack(f"<{len(rest)}I", *rest)


def descriptor(entries):
    """Returns a self-relative descriptor with this DACL alone."""
    aces = b""
    for allows, mask, sid in entries:
        sid = sid_bytes(sid)
        aces += struct.pack("<BBHI", 0 if allows else 1, 0, 8 + len(sid), mask) + sid
    acl = struct.pack("<BBHHH", 2, 0, 8 + len(aces), len(entries), 0) + aces
    return struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + acl


def mask(rng):
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(WORDS)
    if kind < 0.4:
        return rng.choice(GENERIC)
    return sum(rng.sample(RIGHTS, rng.randint(1, 8)))


def desired(rng):
    kind = rng.random()
    if kind < 0.3:
        return MAXIMUM_ALLOWED
    if kind < 0.4:
        return rng.choice(GENERIC)
    return sum(rng.sample(RIGHTS, rng.randint(1, 4)))


class Server:
    def __init__(self, place):
        self.address, port, self.share = place.split(":")
        self.port, self.trees = int(port), {}

    def tree(self, user):
        if user not in self.trees:
            name = f"{os.environ['SMB_DOMAIN']}\\{user}"
            self.trees[user] = raw.Tree(self.address, self.port, name, "Passw0rd", self.share)
        return self.trees[user]

    def make_folder(self, administrator):
        """Makes the folder of the files, in which nobody else may delete."""
        owner = self.tree("Administrator")
        # disposition=3 is FILE_OPEN_IF, options=1 is FILE_DIRECTORY_FILE.
        folder = owner.open(FOLDER, access=READ_CONTROL | WRITE_DAC, disposition=3, options=1)
        owner.set(folder, 3, 0, descriptor([(True, 0x1F01FF, administrator), (True, 0x1200A9, "S-1-1-0")]), DACL)
        owner.close(folder)

    def make(self, name, entries):
        owner = self.tree("Administrator")
        # disposition=5 is FILE_OVERWRITE_IF.
        file = owner.open(name, access=READ_CONTROL | WRITE_DAC | 3, disposition=5)
        owner.set(file, 3, 0, descriptor(entries), DACL)
        owner.close(file)

    def attempt(self, user, name, access):
        """Returns the status of an open, and the granted access if it is to be the highest one."""
        tree = self.tree(user)
        answer = tree.client.call(raw.CREATE, raw.create_body(name, access=access, disposition=1))
        if answer.status != raw.SUCCESS:
            return answer.status, None
        file = answer.body[64:80]
        granted = None
        if access == MAXIMUM_ALLOWED:
            # Level 8 is FileAccessInformation, which has the granted access.
            granted = struct.unpack("<I", tree.query(file, 1, 8))[0]
        tree.close(file)
        return raw.SUCCESS, granted


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(seed)
    sids = json.loads(os.environ["SIDS"])
    servers = [Server(os.environ["FREVO"]), Server(os.environ["SMBD"])]
    administrator = sids.pop("Administrator")
    for server in servers:
        server.make_folder(administrator)
    differences = granted = refused = 0
    for number in range(count):
        named = rng.choices(sorted(sids), k=rng.randint(1, 5))
        entries = [(rng.random() < 0.75, mask(rng), sids[name]) for name in named]
        user, access, name = rng.choice(USERS), desired(rng), f"{FOLDER}\\{number}"
        for server in servers:
            server.make(name, entries)
        said = [server.attempt(user, name, access) for server in servers]
        granted += said[0][0] == raw.SUCCESS
        refused += said[0][0] != raw.SUCCESS
        if said[0] != said[1]:
            differences += 1
            shown = [
                f"{'allow' if allows else 'deny'}:{who}:{bits:#x}"
                for who, (allows, bits, _) in zip(named, entries, strict=True)
            ]
            print(f"difference {number}: {user} wants {access:#x} of {' '.join(shown)}: {said[0]}, smbd {said[1]}")
    print(f"triples {count}, granted {granted}, refused {refused}, differences {differences}, seed {seed}")
    sys.exit(differences > 0 or granted < count // 10 or refused < count // 10)


if __name__ == "__main__":
    main()
