"""impacket's RPC over TCP against the server in SMB_*."""

import os

from impacket.dcerpc.v5 import epm, lsad, lsat, samr, transport
from impacket.dcerpc.v5.rpcrt import (
    RPC_C_AUTHN_LEVEL_PKT_INTEGRITY,
    RPC_C_AUTHN_LEVEL_PKT_PRIVACY,
    DCERPCException,
)

from report import check

address, user, password = (os.environ["SMB_" + k] for k in ("ADDR", "USER", "PASS"))


def binding(interface):
    return epm.hept_map(address, interface, protocol="ncacn_ip_tcp")


def connect(interface, level=None, word=password):
    channel = transport.DCERPCTransportFactory(binding(interface))
    channel.set_credentials(user, word)
    dce = channel.get_dce_rpc()
    if level:
        dce.set_auth_level(level)
    dce.connect()
    dce.bind(interface)
    return dce


def users(dce):
    handle = samr.hSamrConnect(dce)["ServerHandle"]
    names = samr.hSamrEnumerateDomainsInSamServer(dce, handle)["Buffer"]["Buffer"]
    sid = samr.hSamrLookupDomainInSamServer(dce, handle, names[0]["Name"])["DomainId"]
    domain = samr.hSamrOpenDomain(dce, handle, domainId=sid)["DomainHandle"]
    found = samr.hSamrEnumerateUsersInDomain(dce, domain)["Buffer"]["Buffer"]
    return {one["Name"] for one in found}


def refused(call):
    try:
        call()
    except DCERPCException as error:
        assert "access_denied" in str(error).lower() or "ACCESS_DENIED" in str(error), error
        return
    raise AssertionError("it is answered")


with check("endpoints"):
    assert binding(samr.MSRPC_UUID_SAMR).startswith("ncacn_ip_tcp:"), binding(samr.MSRPC_UUID_SAMR)
    assert binding(lsat.MSRPC_UUID_LSAT).startswith("ncacn_ip_tcp:")
with check("samr-sealed"):
    assert user in users(connect(samr.MSRPC_UUID_SAMR, RPC_C_AUTHN_LEVEL_PKT_PRIVACY))
with check("samr-signed"):
    dce = connect(samr.MSRPC_UUID_SAMR, RPC_C_AUTHN_LEVEL_PKT_INTEGRITY)
    refused(lambda: samr.hSamrConnect(dce))
with check("samr-plain"):
    dce = connect(samr.MSRPC_UUID_SAMR)
    refused(lambda: samr.hSamrConnect(dce))
with check("lsarpc-signed"):
    for level in (RPC_C_AUTHN_LEVEL_PKT_INTEGRITY, RPC_C_AUTHN_LEVEL_PKT_PRIVACY):
        dce = connect(lsat.MSRPC_UUID_LSAT, level)
        policy = lsad.hLsarOpenPolicy2(dce)["PolicyHandle"]
        found = lsat.hLsarLookupNames(dce, policy, (user,))
        assert found["TranslatedSids"]["Sids"][0]["Use"] == 1, found.dump()
