//! The privileges that a server knows, MS-LSAD 3.1.1.2.1, and the calls about them, 3.1.4.8. They tell
//! names and numbers; nobody is given a privilege by them.

use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::codec::Parsed;
use frevo_wire::fscc::eq_ignore_case;
use frevo_wire::ndr::{ContextHandle, NdrReader, NdrWriter};

/// A privilege.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Privilege {
    /// The low half of its LUID; the high half is zero.
    pub(super) luid: u32,
    pub(super) name: &'static str,
    /// The description for people, in English.
    shown: &'static str,
}

/// The language of the descriptions: English of the United States.
const ENGLISH: u16 = 0x0409;

#[rustfmt::skip]
const PRIVILEGES: [Privilege; 34] = [
    Privilege { luid: 2, name: "SeCreateTokenPrivilege", shown: "Create a token object" },
    Privilege { luid: 3, name: "SeAssignPrimaryTokenPrivilege", shown: "Replace a process-level token" },
    Privilege { luid: 4, name: "SeLockMemoryPrivilege", shown: "Lock pages in memory" },
    Privilege { luid: 5, name: "SeIncreaseQuotaPrivilege", shown: "Adjust memory quotas for a process" },
    Privilege { luid: 6, name: "SeMachineAccountPrivilege", shown: "Add workstations to domain" },
    Privilege { luid: 7, name: "SeTcbPrivilege", shown: "Act as part of the operating system" },
    Privilege { luid: 8, name: "SeSecurityPrivilege", shown: "Manage auditing and security log" },
    Privilege { luid: 9, name: "SeTakeOwnershipPrivilege", shown: "Take ownership of files or other objects" },
    Privilege { luid: 10, name: "SeLoadDriverPrivilege", shown: "Load and unload device drivers" },
    Privilege { luid: 11, name: "SeSystemProfilePrivilege", shown: "Profile system performance" },
    Privilege { luid: 12, name: "SeSystemtimePrivilege", shown: "Change system time" },
    Privilege { luid: 13, name: "SeProfileSingleProcessPrivilege", shown: "Profile single process" },
    Privilege { luid: 14, name: "SeIncreaseBasePriorityPrivilege", shown: "Increase scheduling priority" },
    Privilege { luid: 15, name: "SeCreatePagefilePrivilege", shown: "Create a page file" },
    Privilege { luid: 16, name: "SeCreatePermanentPrivilege", shown: "Create permanent shared objects" },
    Privilege { luid: 17, name: "SeBackupPrivilege", shown: "Back up files and directories" },
    Privilege { luid: 18, name: "SeRestorePrivilege", shown: "Restore files and directories" },
    Privilege { luid: 19, name: "SeShutdownPrivilege", shown: "Shut down the system" },
    Privilege { luid: 20, name: "SeDebugPrivilege", shown: "Debug programs" },
    Privilege { luid: 21, name: "SeAuditPrivilege", shown: "Generate security audits" },
    Privilege { luid: 22, name: "SeSystemEnvironmentPrivilege", shown: "Modify firmware environment values" },
    Privilege { luid: 23, name: "SeChangeNotifyPrivilege", shown: "Bypass traverse checking" },
    Privilege { luid: 24, name: "SeRemoteShutdownPrivilege", shown: "Force shutdown from a remote system" },
    Privilege { luid: 25, name: "SeUndockPrivilege", shown: "Remove computer from docking station" },
    Privilege { luid: 26, name: "SeSyncAgentPrivilege", shown: "Synchronize directory service data" },
    Privilege { luid: 27, name: "SeEnableDelegationPrivilege", shown: "Enable computer and user accounts to be trusted for delegation" },
    Privilege { luid: 28, name: "SeManageVolumePrivilege", shown: "Manage the files on a volume" },
    Privilege { luid: 29, name: "SeImpersonatePrivilege", shown: "Impersonate a client after authentication" },
    Privilege { luid: 30, name: "SeCreateGlobalPrivilege", shown: "Create global objects" },
    Privilege { luid: 31, name: "SeTrustedCredManAccessPrivilege", shown: "Access Credential Manager as a trusted caller" },
    Privilege { luid: 32, name: "SeRelabelPrivilege", shown: "Modify an object label" },
    Privilege { luid: 33, name: "SeIncreaseWorkingSetPrivilege", shown: "Increase a process working set" },
    Privilege { luid: 34, name: "SeTimeZonePrivilege", shown: "Change time zone" },
    Privilege { luid: 35, name: "SeCreateSymbolicLinkPrivilege", shown: "Create symbolic links" },
];

/// Returns the privilege of a number.
pub(super) fn with_luid(luid: u32) -> Option<&'static Privilege> {
    PRIVILEGES.iter().find(|known| known.luid == luid)
}

/// Returns the privilege of a name.
pub(super) fn named(name: &str) -> Option<&'static Privilege> {
    PRIVILEGES.iter().find(|known| eq_ignore_case(known.name, name))
}

/// Arguments of LsarEnumerateAccounts, of LsarEnumeratePrivileges, and of LsarEnumerateTrustedDomains and its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enumerate {
    /// PolicyHandle
    pub policy: ContextHandle,
    /// EnumerationContext: the number of the first entry.
    pub from: u32,
    /// PreferedMaximumLength, bytes.
    pub length: u32,
}

impl Enumerate {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let policy = r.handle("Lsar enumeration PolicyHandle")?;
        let from = r.u32("Lsar enumeration EnumerationContext")?;
        Ok(Self { policy, from, length: r.u32("Lsar enumeration PreferedMaximumLength")? })
    }

    /// Stub data of the reply of LsarEnumeratePrivileges, MS-LSAD 3.1.4.8.1: privileges until they have
    /// the length, and one at least.
    ///
    /// Deviation: the reply with the last privilege is to have NO_MORE_ENTRIES. Here it has SUCCESS, as
    /// smbd's: clients such as rpcclient take the other status for a failure and drop what they got.
    pub fn encode_privileges(self, allowed: Result<(), Status>) -> Vec<u8> {
        let from = usize::try_from(self.from).unwrap_or(usize::MAX);
        let rest = PRIVILEGES.get(from..).filter(|rest| !rest.is_empty() && allowed.is_ok());
        let Some(rest) = rest else {
            return self.encode_nothing(allowed.err().unwrap_or(Status::NO_MORE_ENTRIES));
        };
        let mut length = 0u32;
        let goes_on = |privilege: &&Privilege| {
            let is_short = length < self.length;
            let units = u32::try_from(privilege.name.len()).unwrap_or(u32::MAX);
            length = length.saturating_add(units.saturating_mul(2)).saturating_add(ENTRY_BYTES);
            is_short
        };
        let count = rest.iter().take_while(goes_on).count().max(1);
        let told = rest.get(..count).unwrap_or(rest);
        let status = if count < rest.len() { Status::MORE_ENTRIES } else { Status::SUCCESS };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let mut w = NdrWriter::new();
        w.u32(self.from.saturating_add(count)).u32(count).pointer(true).u32(count);
        for privilege in told {
            w.unicode_head(privilege.name, 0).u32(privilege.luid).u32(0);
        }
        for privilege in told {
            w.unicode(privilege.name, 0);
        }
        w.u32(status.0);
        w.into_stub()
    }

    /// Stub data of a reply without entries.
    pub fn encode_nothing(self, status: Status) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.u32(self.from).u32(0).pointer(false).u32(status.0);
        w.into_stub()
    }
}

/// Bytes of an entry without its name, or with a SID.
pub(super) const ENTRY_BYTES: u32 = 16;

/// The privilege that a lookup is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupPrivilege {
    /// PolicyHandle
    pub policy: ContextHandle,
    found: Option<Privilege>,
}

impl LookupPrivilege {
    /// Parses the stub data of LsarLookupPrivilegeValue, and the beginning of that of
    /// LsarLookupPrivilegeDisplayName, whose languages are ignored: there is one.
    pub fn by_name(stub: &[u8]) -> Parsed<Self> {
        let what = "LsarLookupPrivilege Name";
        let mut r = NdrReader::new(stub);
        let policy = r.handle("LsarLookupPrivilege PolicyHandle")?;
        let head = r.unicode_head(what)?;
        let name = r.unicode(head, what)?.decode()?;
        Ok(Self { policy, found: named(&name).copied() })
    }

    /// Parses the stub data of LsarLookupPrivilegeName.
    pub fn by_value(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let policy = r.handle("LsarLookupPrivilege PolicyHandle")?;
        let low = r.u32("LsarLookupPrivilegeName Value")?;
        let high = r.u32("LsarLookupPrivilegeName Value")?;
        let found = PRIVILEGES.iter().find(|known| high == 0 && known.luid == low);
        Ok(Self { policy, found: found.copied() })
    }

    fn judged(self, allowed: Result<(), Status>) -> Result<Privilege, Status> {
        allowed.and(self.found.ok_or(Status::NO_SUCH_PRIVILEGE))
    }

    /// Stub data of the reply of LsarLookupPrivilegeValue, MS-LSAD 3.1.4.8.2.
    pub fn encode_value(self, allowed: Result<(), Status>) -> Vec<u8> {
        let found = self.judged(allowed);
        let mut w = NdrWriter::new();
        w.u32(found.map_or(0, |privilege| privilege.luid)).u32(0);
        w.u32(found.err().unwrap_or(Status::SUCCESS).0);
        w.into_stub()
    }

    /// Stub data of the reply of LsarLookupPrivilegeName, MS-LSAD 3.1.4.8.3.
    pub fn encode_name(self, allowed: Result<(), Status>) -> Vec<u8> {
        let found = self.judged(allowed);
        let mut w = NdrWriter::new();
        encode_text(&mut w, found.ok().map(|privilege| privilege.name));
        w.u32(found.err().unwrap_or(Status::SUCCESS).0);
        w.into_stub()
    }

    /// Stub data of the reply of LsarLookupPrivilegeDisplayName, MS-LSAD 3.1.4.8.4.
    pub fn encode_shown(self, allowed: Result<(), Status>) -> Vec<u8> {
        let found = self.judged(allowed);
        let mut w = NdrWriter::new();
        encode_text(&mut w, found.ok().map(|privilege| privilege.shown));
        w.u16(if found.is_ok() { ENGLISH } else { 0 });
        w.u32(found.err().unwrap_or(Status::SUCCESS).0);
        w.into_stub()
    }
}

/// A pointer to an RPC_UNICODE_STRING.
fn encode_text(w: &mut NdrWriter, text: Option<&str>) {
    w.pointer(text.is_some());
    if let Some(text) = text {
        w.unicode_head(text, 0).unicode(text, 0);
    }
}
