"""AP-REQs of one's own making: each is sent as a client of the network could send it.

tickets_peer.py KIND: `fresh` logs on; `replayed` logs on, and sends the same bytes again over another
connection; `altered` makes the user a domain administrator in the PAC, and encrypts the ticket again
with the key of the server, which leaves the signatures as they were.  The ticket is that of the
credentials cache.  Prints the status of the last answer.
"""

import datetime
import os
import struct
import sys

from impacket.krb5 import constants
from impacket.krb5.asn1 import AP_REQ, TGS_REP, Authenticator, seq_set
from impacket.krb5.ccache import CCache
from impacket.krb5.crypto import Key, _enctype_table
from impacket.krb5.keytab import Keytab
from impacket.krb5.types import KerberosTime, Principal, Ticket
from impacket.spnego import ASN1_AID, ASN1_OID, SPNEGO_NegTokenInit, TypesMech, asn1encode
from pyasn1.codec.der import decoder, encoder
from pyasn1.type.univ import noValue

import raw

# Key usage numbers of the ticket and of the authenticator (RFC 4120 section 7.5.1).
TICKET, AUTHENTICATOR = 2, 11
# The bytes that mark an AP-REQ in a token (RFC 4121 section 4.1).
KRB5_AP_REQ = b"\x01\x00"

HOST, REALM = os.environ["SMB_HOST"], os.environ["SMB_REALM"]


def service_ticket():
    """Returns the ticket for the server, its session key, and the name of its client."""
    cache = CCache.loadFile(os.environ["KRB5CCNAME"].removeprefix("FILE:"))
    found = cache.getCredential(f"cifs/{HOST}@{REALM}", anySPN=False).toTGS()
    ticket = decoder.decode(found["KDC_REP"], asn1Spec=TGS_REP())[0]["ticket"]
    user = cache.principal.components[0]["data"]
    return ticket, found["sessionKey"], user.decode() if isinstance(user, bytes) else user


def altered(ticket):
    """Returns the ticket with another group in its PAC."""
    part = ticket["enc-part"]
    etype = int(part["etype"])
    kept = Keytab.loadFile(os.environ["SMB_KEYTAB"])
    block = kept.getKey(f"FILES$@{REALM}", etype)
    key = Key(etype, block["keyvalue"]["data"])
    cipher = _enctype_table[etype]
    plain = cipher.decrypt(key, TICKET, bytes(part["cipher"]))
    # In GROUP_MEMBERSHIP (MS-PAC 2.2.2) replace the group Domain Users by Domain Admins.
    before, after = struct.pack("<II", 513, 7), struct.pack("<II", 512, 7)
    if plain.count(before) != 1:
        raise SystemExit("the PAC does not have the group Domain Users once")
    part["cipher"] = cipher.encrypt(key, TICKET, plain.replace(before, after), None)
    return ticket


def token(asn1_ticket, session_key, user):
    """Returns a NegTokenInit with an AP-REQ for the ticket."""
    ticket = Ticket()
    ticket.from_asn1(asn1_ticket)
    request = AP_REQ()
    request["pvno"] = 5
    request["msg-type"] = int(constants.ApplicationTagNumbers.AP_REQ.value)
    request["ap-options"] = constants.encodeFlags([])
    seq_set(request, "ticket", ticket.to_asn1)
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    authenticator = Authenticator()
    authenticator["authenticator-vno"] = 5
    authenticator["crealm"] = REALM
    name = Principal(user, type=constants.PrincipalNameType.NT_PRINCIPAL.value)
    seq_set(authenticator, "cname", name.components_to_asn1)
    authenticator["cusec"] = now.microsecond
    authenticator["ctime"] = KerberosTime.to_asn1(now)
    cipher = _enctype_table[session_key.enctype]
    request["authenticator"] = noValue
    request["authenticator"]["etype"] = cipher.enctype
    request["authenticator"]["cipher"] = cipher.encrypt(session_key, AUTHENTICATOR, encoder.encode(authenticator), None)
    init = SPNEGO_NegTokenInit()
    init["MechTypes"] = [TypesMech["MS KRB5 - Microsoft Kerberos 5"]]
    # RFC 4121 section 4.1: the mechanism and the kind come first in the token.
    mechanism = bytes([ASN1_OID]) + asn1encode(TypesMech["KRB5 - Kerberos 5"])
    init["MechToken"] = bytes([ASN1_AID]) + asn1encode(mechanism + KRB5_AP_REQ + encoder.encode(request))
    return init.getData()


class Client(raw.Client):
    """A client that sends one token, and asks for nothing else."""

    def __init__(self, sent):
        self.sent = sent
        super().__init__(os.environ["SMB_ADDR"], int(os.environ["SMB_PORT"]), None, None)

    def log_on(self, address, user, password):
        body = struct.pack("<HBBIIHHQ", 25, 0, 1, 0, 0, 88, len(self.sent), 0) + self.sent
        self.preauthenticated(raw.SESSION_SETUP, body)


def status(sent):
    try:
        Client(sent).close()
    except raw.Refused as refused:
        return refused.status
    return raw.SUCCESS


def main():
    kind = sys.argv[1]
    ticket, session_key, user = service_ticket()
    sent = token(altered(ticket) if kind == "altered" else ticket, session_key, user)
    last = status(sent)
    if kind == "replayed":
        if last != raw.SUCCESS:
            raise SystemExit(f"the first logon fails: {last:#010x}")
        last = status(sent)
    print(f"{last:#010x}")


main()
