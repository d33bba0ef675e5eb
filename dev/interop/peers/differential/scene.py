"""A folder with equal files on both servers, and the functions that all areas use."""

import struct

import raw


class Scene:
    """A folder with a file of 5,000 bytes, an empty file and a folder with three files."""

    def __init__(self, pair, rng, number):
        self.pair, self.rng, self.report, self.base = pair, rng, pair.report, f"scene{number}"
        pair.close(pair.open(self.base, options=1, disposition=2))
        for name, data in (
            ("a", bytes(range(250)) * 20),
            ("b", b""),
            ("d", None),
            ("d\\1", b"1"),
            ("d\\2", b"22"),
            ("d\\Third.txt", b"333"),
        ):
            file = pair.open(f"{self.base}\\{name}", options=1 if data is None else 0x40, disposition=2)
            if data:
                pair.call(raw.WRITE, pair.on(file, raw.write_body, 0, data))
            pair.close(file)

    def path(self, name):
        if isinstance(name, bytes):
            return (self.base + "\\").encode("utf-16-le") + name
        return f"{self.base}\\{name}"

    def some_file(self, access=0x1F01FF):
        """Opens an object of the scene; returns (kind, pair of FileIds)."""
        kind, name, options = self.rng.choice((("file", "a", 0), ("empty", "b", 0), ("folder", "d", 1)))
        return kind, self.pair.open(self.path(name), access=access, options=options, disposition=1)

    def listing(self, folder):
        """Returns names, sizes and attributes in a folder of the scene, on both servers."""
        file = self.pair.open(self.path(folder) if folder else self.base, access=0x100081, options=1, disposition=1)
        answers = self.pair.call(raw.QUERY_DIRECTORY, self.pair.on(file, raw.directory_body, 1, "*", 1))
        self.pair.close(file)
        found = []
        for answer in answers:
            entries = [e for e in raw.chained(answer.buffer())] if answer.status == 0 else []
            found.append(
                sorted(
                    (
                        e[64 : 64 + struct.unpack_from("<I", e, 60)[0]].decode("utf-16-le", "replace"),
                        struct.unpack_from("<Q", e, 40)[0] if not struct.unpack_from("<I", e, 56)[0] & 0x10 else 0,
                        struct.unpack_from("<I", e, 56)[0],
                    )
                    for e in entries
                )
            )
        return found

    def compare_listing(self, folder, after, done=()):
        ours, theirs = self.listing(folder)
        if ours != theirs:
            self.report.differ(
                f"left after {after}",
                f"{[x for x in ours if x not in theirs]}, "
                f"smbd {[x for x in theirs if x not in ours]}; {'; '.join(done)}",
            )
