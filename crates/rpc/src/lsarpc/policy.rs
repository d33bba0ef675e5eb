//! Opening and querying the policy: MS-LSAD 3.1.4.4.

use super::super::{Domain, PrimaryDomain};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::ndr::ContextHandle;
use frevo_wire::ndr::{NdrReader, NdrWriter};
use frevo_wire::{Status, open_enum};

/// Arguments of LsarOpenPolicy and LsarOpenPolicy2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenPolicy {
    /// DesiredAccess; none when ObjectAttributes names an object, which no
    /// policy has below it.
    pub desired: Option<AccessMask>,
}

impl OpenPolicy {
    /// Parses the stub data; `is_second` for LsarOpenPolicy2, whose SystemName
    /// is a string and not one character.
    pub fn parse(stub: &[u8], is_second: bool) -> Parsed<Self> {
        Self::read(&mut NdrReader::new(stub), is_second)
    }

    fn read(r: &mut NdrReader<'_>, is_second: bool) -> Parsed<Self> {
        if is_second {
            r.unique_string("LsarOpenPolicy2 SystemName")?;
        } else if r.pointer("LsarOpenPolicy SystemName")? {
            r.u16("LsarOpenPolicy SystemName")?;
        }
        r.u32("LSAPR_OBJECT_ATTRIBUTES Length")?;
        let root = r.pointer("LSAPR_OBJECT_ATTRIBUTES RootDirectory")?;
        let name = r.pointer("LSAPR_OBJECT_ATTRIBUTES ObjectName")?;
        r.u32("LSAPR_OBJECT_ATTRIBUTES Attributes")?;
        let descriptor = r.pointer("LSAPR_OBJECT_ATTRIBUTES SecurityDescriptor")?;
        let quality = r.pointer("LSAPR_OBJECT_ATTRIBUTES SecurityQualityOfService")?;
        // MS-LSAD 3.1.4.4.1: RootDirectory must be NULL. Deviation: ObjectName and
        // SecurityDescriptor must be NULL as well, because no client sends them. Otherwise the call
        // fails.
        if root || name || descriptor {
            return Ok(Self { desired: None });
        }
        if quality {
            r.u32("SECURITY_QUALITY_OF_SERVICE Length")?;
            r.u16("SECURITY_QUALITY_OF_SERVICE ImpersonationLevel")?;
            r.u8("SECURITY_QUALITY_OF_SERVICE ContextTrackingMode")?;
            r.u8("SECURITY_QUALITY_OF_SERVICE EffectiveOnly")?;
        }
        Ok(Self { desired: Some(AccessMask(r.u32("LsarOpenPolicy DesiredAccess")?)) })
    }

    /// Stub data of LsarOpenPolicy2 to `server`, which is `\\name`.
    pub fn encode(desired: AccessMask, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.unique_string(Some(server));
        // LSAPR_OBJECT_ATTRIBUTES has a length of 24 bytes, and its other fields are zero.
        // DesiredAccess follows.
        w.u32(24).u32(0).u32(0).u32(0).u32(0).u32(0).u32(desired.0);
        w.into_stub()
    }
}

/// Arguments of LsarOpenPolicy3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenPolicy3 {
    /// The arguments that LsarOpenPolicy2 has.
    pub open: OpenPolicy,
    /// InVersion
    pub version: u32,
}

impl OpenPolicy3 {
    /// Parses the stub data. LSAPR_REVISION_INFO (MS-LSAD 2.2.2.7) is read for version 1 only, which
    /// alone is supported, and ignored.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let what = "LsarOpenPolicy3 InVersion";
        let mut r = NdrReader::new(stub);
        let open = OpenPolicy::read(&mut r, true)?;
        // If the object attributes are not empty (`desired` is None), the call will fail, so the
        // remaining fields are not parsed.
        let version = if open.desired.is_some() { r.u32(what)? } else { 1 };
        if open.desired.is_some() && version == 1 {
            let revision = "LSAPR_REVISION_INFO";
            if r.u32(revision)? != version {
                return Err(Malformed::new(revision));
            }
            r.u32(revision)?;
            r.u32(revision)?;
        }
        Ok(Self { open, version })
    }

    /// Stub data of the call to `server`, which is `\\name`.
    pub fn encode(desired: AccessMask, version: u32, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.unique_string(Some(server));
        w.u32(24).u32(0).u32(0).u32(0).u32(0).u32(0).u32(desired.0);
        w.u32(version).u32(version).u32(1).u32(0);
        w.into_stub()
    }

    /// Stub data of the reply. SupportedFeatures is empty: there are no secrets and no trusts here,
    /// which AES could protect, and names are looked up for domain controllers only.
    pub fn encode_reply(handle: Option<ContextHandle>, status: Status) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.u32(1).u32(1).u32(1).u32(0);
        w.handle(&handle.unwrap_or(ContextHandle::NULL)).u32(status.0);
        w.into_stub()
    }

    /// Parses the reply: the handle, and the status of the call.
    pub fn parse_reply(stub: &[u8]) -> Parsed<(ContextHandle, Status)> {
        let what = "LsarOpenPolicy3 reply";
        let mut r = NdrReader::new(stub);
        for expected in [1, 1, 1] {
            if r.u32(what)? != expected {
                return Err(Malformed::new(what));
            }
        }
        r.u32(what)?;
        Ok((r.handle(what)?, Status(r.u32(what)?)))
    }
}

open_enum! {
    /// POLICY_INFORMATION_CLASS, MS-LSAD 2.2.4.1: the supported classes.
    PolicyInformation(u16) {
        /// PolicyPrimaryDomainInformation
        PRIMARY_DOMAIN = 3,
        /// PolicyAccountDomainInformation
        ACCOUNT_DOMAIN = 5,
        /// PolicyLsaServerRoleInformation
        SERVER_ROLE = 6,
        /// PolicyDnsDomainInformation
        DNS_DOMAIN = 12,
        /// PolicyDnsDomainInformationInt
        DNS_DOMAIN_INT = 13,
        /// PolicyLocalAccountDomainInformation
        LOCAL_ACCOUNT_DOMAIN = 14,
    }
}

/// PolicyServerRolePrimary, MS-LSAD 2.2.4.8.
const ROLE_PRIMARY: u16 = 3;

/// The reply of LsarQueryInformationPolicy and its successor. `primary` is the
/// domain or workgroup that the machine is in, `accounts` the machine's own.
pub fn encode_information(
    class: PolicyInformation,
    primary: &PrimaryDomain,
    accounts: &Domain,
) -> Option<Vec<u8>> {
    let mut w = NdrWriter::new();
    w.pointer(true).u16(class.0);
    match class {
        PolicyInformation::PRIMARY_DOMAIN => {
            let domain = Domain { name: primary.name.clone(), sid: primary.sid };
            encode_domain(&mut w, &domain);
        }
        PolicyInformation::ACCOUNT_DOMAIN | PolicyInformation::LOCAL_ACCOUNT_DOMAIN => {
            encode_domain(&mut w, accounts)
        }
        PolicyInformation::SERVER_ROLE => {
            // C706 14.3.8: all arms of a union have the alignment of the largest one.
            w.align(4).u16(ROLE_PRIMARY);
        }
        PolicyInformation::DNS_DOMAIN | PolicyInformation::DNS_DOMAIN_INT => {
            // A machine without a domain has no DNS domain name and no DNS forest name. The GUID of
            // a domain is not known, nor is a forest of another name, so the domain stands for it.
            let dns = &*primary.dns_name;
            w.unicode_head(&primary.name, 1).unicode_head(dns, 0).unicode_head(dns, 0);
            w.u32(0).u32(0).u32(0).u32(0).pointer(primary.sid.is_some());
            w.unicode(&primary.name, 1).unicode(dns, 0).unicode(dns, 0);
            if let Some(sid) = &primary.sid {
                w.sid(sid);
            }
        }
        _ => return None,
    }
    w.u32(Status::SUCCESS.0);
    Some(w.into_stub())
}

/// LSAPR_POLICY_PRIMARY_DOM_INFO and LSAPR_POLICY_ACCOUNT_DOM_INFO.
fn encode_domain(w: &mut NdrWriter, domain: &Domain) {
    w.unicode_head(&domain.name, 1).pointer(domain.sid.is_some());
    w.unicode(&domain.name, 1);
    if let Some(sid) = &domain.sid {
        w.sid(sid);
    }
}

/// Arguments of LsarGetUserName.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserName {
    /// True if the caller also asks for the domain's name.
    pub wants_domain: bool,
}

impl UserName {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        r.unique_string("LsarGetUserName SystemName")?;
        // MS-LSAT 3.1.4.4: the user name and the domain name in the request are ignored.
        skip_name(&mut r)?;
        let wants_domain = r.pointer("LsarGetUserName DomainName")?;
        if wants_domain {
            skip_name(&mut r)?;
        }
        Ok(Self { wants_domain })
    }

    /// Stub data of the call.
    pub fn encode(self, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.unique_string(Some(server)).pointer(false).pointer(self.wants_domain);
        if self.wants_domain {
            w.pointer(false);
        }
        w.into_stub()
    }
}

/// A unique pointer to an RPC_UNICODE_STRING.
fn skip_name(r: &mut NdrReader<'_>) -> Parsed<()> {
    if r.pointer("LsarGetUserName name")? {
        let head = r.unicode_head("LsarGetUserName name")?;
        r.unicode(head, "LsarGetUserName name")?;
    }
    Ok(())
}

/// The answer of LsarGetUserName.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserNameReply {
    /// UserName
    pub user: String,
    /// DomainName, if it was asked for.
    pub domain: Option<String>,
}

impl UserNameReply {
    /// Stub data of the reply.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.pointer(true).unicode_head(&self.user, 0).unicode(&self.user, 0);
        w.pointer(self.domain.is_some());
        if let Some(domain) = &self.domain {
            w.pointer(true).unicode_head(domain, 1).unicode(domain, 1);
        }
        w.u32(Status::SUCCESS.0);
        w.into_stub()
    }

    /// Parses a reply that succeeded.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "LsarGetUserName reply";
        let mut r = NdrReader::new(stub);
        let name = |r: &mut NdrReader<'_>| {
            if !r.pointer(WHAT)? {
                return Ok(String::new());
            }
            let head = r.unicode_head(WHAT)?;
            r.unicode(head, WHAT)?.decode()
        };
        let user = name(&mut r)?;
        let domain = if r.pointer(WHAT)? { Some(name(&mut r)?) } else { None };
        match Status(r.u32(WHAT)?) {
            Status::SUCCESS => Ok(Self { user, domain }),
            _ => Err(Malformed::new(WHAT)),
        }
    }
}
