"""The parts of an answer that both servers must return alike."""

import struct

import raw


def flag(value):
    return "0" if value == 0 else "+"


def stream_list(data):
    found = []
    for entry in raw.chained(data):
        length, size = struct.unpack_from("<IQ", entry, 4)
        found.append((entry[24 : 24 + length].decode("utf-16-le", "replace"), size))
    return sorted(found)


def file_content(level, data):
    """Returns the comparable part of a file information class: no times, ids and allocation."""
    if level in (6, 46, 55, 56, 59, 60, 64, 65, 67, 68, 69, 70, 71):
        return len(data)
    if level == 4 and len(data) >= 36:
        return [*map(flag, struct.unpack_from("<QQQQ", data)), struct.unpack_from("<I", data, 32)[0], len(data)]
    if level == 5 and len(data) >= 22:
        return [data[8:22].hex(), len(data)]
    if level == 18 and len(data) >= 100:
        # Leave out the file name: each server reports it relative to another root.
        return [struct.unpack_from("<I", data, 32)[0], data[48:62].hex(), data[72:96].hex()]
    if level == 34 and len(data) >= 56:
        return [data[40:48].hex(), struct.unpack_from("<I", data, 48)[0]]
    if level == 22:
        return stream_list(data)
    if level == 28:
        return [data[8:10].hex(), len(data)]
    return data.hex()


def fs_content(level, data):
    if level in (4, 11):
        return data.hex()
    if level == 5 and len(data) >= 4:
        return struct.unpack_from("<I", data)[0] & 0x0000000F
    return None if level in (1, 5) else len(data)
