"""Random triples of user, file and operation on the shares of a member, through two servers of one tree.

member_peer.py SEED COUNT: the administrator makes FILES files with random access lists in each share,
through smbd.  For each of COUNT triples the user carries the operation out through Frevo, and again through
smbd: the statuses and the data that is read must be equal.  FREVO and SMBD are `ADDRESS:PORT`; SIDS has a
name and its SID in each line.  Prints each difference, and the numbers of what was granted and refused.
"""

import collections
import os
import random
import sys

import raw
from rights_peer import DACL, READ_CONTROL, USERS, WRITE_DAC, descriptor, mask

SHARES, FILES, FOLDER = ["staff", "guests", "both"], 12, "rights"
# For each operation the access that a program asks for (MS-SMB2 2.2.13.1.1).
OPERATIONS = {
    "read": 0x1,
    "write": 0x2,
    "append": 0x4,
    "attributes": 0x80,
    "delete": 0x10000,
    "rights": 0x40000,
    "owner": 0x80000,
}


class Server:
    def __init__(self, place):
        self.address, port = place.split(":")
        self.port, self.trees = int(port), {}

    def tree(self, user, share):
        """Returns the share as the user has it, or None where it refuses the user."""
        key = (user, share)
        if key not in self.trees:
            name = f"{os.environ['SMB_DOMAIN']}\\{user}"
            try:
                self.trees[key] = raw.Tree(self.address, self.port, name, "Passw0rd", share)
            except raw.Refused:
                self.trees[key] = None
        return self.trees[key]

    def make(self, share, entries, administrator):
        """Makes the files of a share with these lists."""
        owner = self.tree("Administrator", share)
        # disposition=3 is FILE_OPEN_IF, options=1 is FILE_DIRECTORY_FILE.
        folder = owner.open(FOLDER, access=READ_CONTROL | WRITE_DAC, disposition=3, options=1)
        owner.set(folder, 3, 0, descriptor([(True, 0x1F01FF, administrator), (True, 0x1200A9, "S-1-1-0")]), DACL)
        owner.close(folder)
        for number, listed in enumerate(entries):
            file = owner.open(f"{FOLDER}\\{number}", access=READ_CONTROL | WRITE_DAC | 3, disposition=5)
            owner.write(file, f"{share} {number}\n".encode())
            owner.set(file, 3, 0, descriptor(listed), DACL)
            owner.close(file)

    def carry_out(self, user, share, name, operation):
        """Returns what came out: a word or a status, and the data."""
        tree = self.tree(user, share)
        if tree is None:
            return "no share", None
        body = raw.create_body(name, access=OPERATIONS[operation], disposition=1)
        answer = tree.client.call(raw.CREATE, body)
        if answer.status != raw.SUCCESS:
            return answer.status, None
        file, data = answer.body[64:80], None
        if operation == "read":
            data = tree.read(file)
        elif operation == "write":
            tree.write(file, b"S")
        tree.close(file)
        return raw.SUCCESS, data


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(seed)
    sids = dict(line.split("\t") for line in os.environ["SIDS"].splitlines())
    administrator = sids.pop("Administrator")
    sids["Everyone"], sids["Authenticated Users"] = "S-1-1-0", "S-1-5-11"
    frevo, smbd = Server(os.environ["FREVO"]), Server(os.environ["SMBD"])
    for share in SHARES:
        lists = []
        for _ in range(FILES):
            named = rng.choices(sorted(sids), k=rng.randint(1, 5))
            lists.append([(rng.random() < 0.75, mask(rng), sids[name]) for name in named])
        smbd.make(share, lists, administrator)
    differences, seen = 0, collections.Counter()
    for _ in range(count):
        user, share, operation = rng.choice(USERS), rng.choice(SHARES), rng.choice(sorted(OPERATIONS))
        name = f"{FOLDER}\\{rng.randrange(FILES)}"
        said = [server.carry_out(user, share, name, operation) for server in (frevo, smbd)]
        word = {"no share": "no share", raw.SUCCESS: "granted"}.get(said[0][0], "refused")
        seen[word] += 1
        if said[0] != said[1]:
            differences += 1
            print(f"difference: {user} {operation} {share}\\{name}: {said[0]}, smbd {said[1]}")
    told = ", ".join(f"{word} {number}" for word, number in sorted(seen.items()))
    print(f"triples {count}, {told}, differences {differences}, seed {seed}")
    sys.exit(differences > 0 or min(seen[word] for word in ("no share", "granted", "refused")) < count // 10)


if __name__ == "__main__":
    main()
