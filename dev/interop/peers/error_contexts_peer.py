"""impacket against nodes of a cluster: each field of the error contexts of TREE_CONNECT (MS-SMB2 2.2.2).

error_contexts_peer.py fence ADDRESS MAX         all dialects at one node, which lets in MAX at most
error_contexts_peer.py redirect ADDRESS OWNER    a share without addresses that another node owns
"""

import ipaddress
import os
import struct
import sys

from impacket.smb3structs import SMB2_TREE_CONNECT, SMB2TreeConnect
from impacket.smbconnection import SMBConnection

from report import check

USER, PASSWORD = os.environ["SMB_USER"], os.environ["SMB_PASS"]
DIALECTS = {"2.1": 0x0210, "3.0": 0x0300, "3.0.2": 0x0302, "3.1.1": 0x0311}
CLUSTER_RECONNECT, REDIRECT_TO_OWNER = 1, 2
SUCCESS, BAD_NETWORK_NAME, BAD_CLUSTER_DIALECT = 0, 0xC00000CC, 0xC05D0001
MOVING, SCALE_OUT, OWN = "data", "plain", "own"


def tree_connect(address, dialect, share, flags=0):
    """The status and the body of an answer to TREE_CONNECT."""
    connection = SMBConnection(address, address, sess_port=445, preferredDialect=dialect)
    connection.login(USER, PASSWORD)
    server = connection.getSMBServer()
    request = SMB2TreeConnect()
    request["Reserved"] = flags
    request["Buffer"] = f"\\\\{address}\\{share}".encode("utf-16le")
    request["PathLength"] = len(request["Buffer"])
    packet = server.SMB_PACKET()
    packet["Command"] = SMB2_TREE_CONNECT
    packet["Data"] = request
    answer = server.recvSMB(server.sendSMB(packet))
    connection.close()
    return answer["Status"], bytes(answer["Data"])


def spoken():
    """The dialects that impacket speaks."""
    return [(name, number) for name, number in DIALECTS.items() if name != "3.0.2"]


def same(found, wanted):
    assert found == wanted, f"{found} and not {wanted}"


def refusal(dialect, most):
    """StructureSize, ErrorContextCount, Reserved, ByteCount; in 3.1.1 ErrorDataLength and ErrorId; the dialect."""
    if dialect == DIALECTS["3.1.1"]:
        return struct.pack("<HBBIIIH", 9, 1, 0, 10, 2, 0, most)
    return struct.pack("<HBBIH", 9, 0, 0, 2, most)


def fence(address, most):
    most = DIALECTS[most]
    for name, dialect in spoken():
        with check(f"fence-{name}"):
            status, body = tree_connect(address, dialect, MOVING)
            if dialect <= most:
                same(status, SUCCESS)
            else:
                same((status, body), (BAD_CLUSTER_DIALECT, refusal(dialect, most)))
            # A share that is the node's own is not fenced.
            same(tree_connect(address, dialect, OWN)[0], SUCCESS)
            # The flag is one of 3.1.1.
            status, _ = tree_connect(address, dialect, MOVING, CLUSTER_RECONNECT)
            is_let_in = dialect <= most or dialect == DIALECTS["3.1.1"]
            same(status, SUCCESS if is_let_in else BAD_CLUSTER_DIALECT)


def redirect(address, owner):
    plain = (BAD_NETWORK_NAME, struct.pack("<HBBIB", 9, 0, 0, 0, 0))
    for name, dialect in spoken():
        with check(f"redirect-{name}"):
            same(tree_connect(address, dialect, SCALE_OUT), plain)
            found = tree_connect(address, dialect, SCALE_OUT, REDIRECT_TO_OWNER)
            if dialect == DIALECTS["3.1.1"]:
                redirected(*found, owner)
            else:
                same(found, plain)
            same(tree_connect(owner, dialect, SCALE_OUT, REDIRECT_TO_OWNER)[0], SUCCESS)


def redirected(status, body, owner):
    same(status, BAD_NETWORK_NAME)
    size, contexts, reserved, count, length, kind = struct.unpack_from("<HBBIII", body)
    same((size, contexts, reserved, kind), (9, 1, 0, 0x72645253))
    data = body[16:]
    same((count, length), (len(data) + 8, len(data)))
    size, notification, at, name_length, reserved, target, addresses = struct.unpack_from("<IIIIHHI", data)
    same((size, notification, reserved, target), (48, 3, 0, 0))
    same(at, 24 + 24 * addresses)
    name = SCALE_OUT.encode("utf-16le")
    same((name_length, data[at:]), (len(name), name))
    found = []
    for number in range(addresses):
        kind, reserved, packed = struct.unpack_from("<II16s", data, 24 + 24 * number)
        same(reserved, 0)
        if kind == 1:
            same(packed[4:], bytes(12))
            found.append(ipaddress.IPv4Address(packed[:4]))
        else:
            same(kind, 2)
            found.append(ipaddress.IPv6Address(packed))
    assert ipaddress.ip_address(owner) in found, f"{owner} is not among {found}"


{"fence": fence, "redirect": redirect}[sys.argv[1]](*sys.argv[2:])
