"""A client of the witness service (MS-SWN) on impacket: calls with the bytes of NDR as the specification has them."""

import struct

from impacket.dcerpc.v5 import epm, transport
from impacket.dcerpc.v5.rpcrt import RPC_C_AUTHN_LEVEL_PKT_INTEGRITY
from impacket.uuid import uuidtup_to_bin

INTERFACE = uuidtup_to_bin(("ccd8c074-d0e5-4a40-92b4-d074faa6ba28", "1.1"))
GET_INTERFACE_LIST, REGISTER, UN_REGISTER, ASYNC_NOTIFY, REGISTER_EX = range(5)
V1, V2 = 0x00010001, 0x00020000
# Flags and State of WITNESS_INTERFACE_INFO, MS-SWN 2.2.2.5.
IPV4, IPV6, WITNESS, AVAILABLE = 1, 2, 4, 1
# WITNESS_INTERFACE_INFO: InterfaceGroupName, Version, State, IPV4, IPV6, Flags.
INFO = struct.Struct("<520sIHxx4s16sI")
RESOURCE_CHANGE, CLIENT_MOVE, SHARE_MOVE, IP_CHANGE = range(1, 5)
ERROR_TIMEOUT = 1460
# Seconds after which a call counts as lost; a witness answers an idle client before.
CALL_SECONDS, KEEP_ALIVE = 180, 60


class SwnError(Exception):
    """A call has failed with this return value."""

    def __init__(self, call, status):
        super().__init__(f"{call}: Windows error {status}")
        self.status = status


def texts(*values):
    """Unique pointers to strings; NULL for None."""
    out = b""
    for at, value in enumerate(values):
        if value is None:
            out += struct.pack("<I", 0)
            continue
        units = (value + "\0").encode("utf-16-le")
        count = len(units) // 2
        out += struct.pack("<IIII", 0x20000 + 4 * at, count, 0, count) + units + bytes(-len(units) % 4)
    return out


class Witness:
    """A connection with the witness service of a host, signed."""

    def __init__(self, address, user, password, domain=""):
        channel = transport.DCERPCTransportFactory(epm.hept_map(address, INTERFACE, protocol="ncacn_ip_tcp"))
        channel.set_credentials(user, password, domain)
        channel.set_connect_timeout(5)
        self.dce = channel.get_dce_rpc()
        self.dce.set_auth_level(RPC_C_AUTHN_LEVEL_PKT_INTEGRITY)
        self.dce.connect()
        channel.get_socket().settimeout(CALL_SECONDS)
        self.dce.bind(INTERFACE)
        self.handle = None

    def call(self, number, stub):
        self.dce.call(number, stub)
        return self.dce.recv()

    def interfaces(self):
        """The interfaces of the cluster: (group name, version, state, addresses as bytes, flags)."""
        answer = self.call(GET_INTERFACE_LIST, b"")
        (status,) = struct.unpack("<I", answer[-4:])
        if status:
            raise SwnError("WitnessrGetInterfaceList", status)
        _, count, _, _ = struct.unpack_from("<IIII", answer)
        found = []
        for at in range(count):
            name, version, state, four, six, flags = INFO.unpack_from(answer, 16 + at * INFO.size)
            addresses = [four] * bool(flags & IPV4) + [six] * bool(flags & IPV6)
            found.append((name.decode("utf-16-le").split("\0")[0], version, state, addresses, flags))
        return found

    def register(self, net_name, share, address, client="agent"):
        stub = struct.pack("<I", V2) + texts(net_name, share, address, client)
        answer = self.call(REGISTER_EX, stub + struct.pack("<II", 1, KEEP_ALIVE))
        handle, status = answer[:20], struct.unpack("<I", answer[20:24])[0]
        if status:
            raise SwnError("WitnessrRegisterEx", status)
        self.handle = handle

    def news(self):
        """Waits for a notification: its type and its messages. None if there was none for a while."""
        answer = self.call(ASYNC_NOTIFY, self.handle)
        (status,) = struct.unpack("<I", answer[-4:])
        if status == ERROR_TIMEOUT:
            return None
        if status:
            raise SwnError("WitnessrAsyncNotify", status)
        _, kind, length, count, _, _ = struct.unpack_from("<IIIIII", answer)
        buffer = answer[24 : 24 + length]
        return kind, changes(buffer, count) if kind == RESOURCE_CHANGE else addresses(buffer)

    def close(self):
        self.dce.disconnect()


def changes(buffer, count):
    """RESOURCE_CHANGE structures, MS-SWN 2.2.2.3: pairs of a state and a name."""
    found = []
    for _ in range(count):
        length, state = struct.unpack_from("<II", buffer)
        found.append((state, buffer[8:length].decode("utf-16-le").split("\0")[0]))
        buffer = buffer[length:]
    return found


def addresses(buffer):
    """IPADDR_INFO_LIST, MS-SWN 2.2.2.2: pairs of flags and an address as bytes."""
    _, _, count = struct.unpack_from("<III", buffer)
    found = []
    for at in range(count):
        flags, four, six = struct.unpack_from("<I4s16s", buffer, 12 + at * 24)
        found.append((flags, four if flags & 1 else six))
    return found
