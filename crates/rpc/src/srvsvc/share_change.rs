//! Changes of shares: NetrShareAdd, NetrShareSetInfo and NetrShareDel, MS-SRVS 3.1.4.7, 3.1.4.11 and
//! 3.1.4.12.

use super::super::WinError;
use super::share::{ShareInfo, ShareType, read_share, write_share};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::Parsed;
use frevo_wire::fscc::eq_ignore_case;
use frevo_wire::fscc::name::utf16_units;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// Longest name of a share, in UTF-16 units.
const NAME_UNITS: usize = 80;
/// Longest comment, in UTF-16 units.
const REMARK_UNITS: usize = 48;

// MS-SRVS 2.2.2.11: ParmErr names a wrong member of SHARE_INFO by these numbers.
const NETNAME: u32 = 1;
const TYPE: u32 = 3;
const REMARK: u32 = 4;
const PATH: u32 = 8;
const DESCRIPTOR: u32 = 501;

/// STYPE_CLUSTER_FS, STYPE_CLUSTER_SOFS and STYPE_CLUSTER_DFS, which are ignored.
const CLUSTER: u32 = 0x0E00_0000;

/// The arguments of NetrShareAdd or NetrShareSetInfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareChange {
    /// NetName of NetrShareSetInfo; empty for NetrShareAdd.
    pub name: String,
    /// Level
    pub level: u32,
    /// InfoStruct; None for a level that is not supported.
    pub info: Option<ShareInfo>,
    /// True when the caller gave ParmErr.
    pub has_parm_err: bool,
}

/// The parts of a share that NetrShareSetInfo changes. A field that is None keeps its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShareSettings {
    /// remark
    pub remark: Option<String>,
    /// max_uses, all ones for no limit.
    pub max_uses: Option<u32>,
    /// security_descriptor, self-relative.
    pub security_descriptor: Option<Vec<u8>>,
}

/// A refusal, with the member that is wrong; 0 for none.
type Refused = (WinError, u32);

impl ShareChange {
    /// Parses the stub data of NetrShareAdd.
    pub fn parse_add(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        r.unique_string("ServerName")?;
        Self::read(&mut r, String::new())
    }

    /// Parses the stub data of NetrShareSetInfo.
    pub fn parse_set(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        r.unique_string("ServerName")?;
        let name = r.string("NetName")?.to_string_lossy();
        Self::read(&mut r, name)
    }

    fn read(r: &mut NdrReader<'_>, name: String) -> Parsed<Self> {
        let level = r.u32("Level")?;
        let info = read_share(r, level)?;
        let has_parm_err = info.is_some() && r.pointer("ParmErr")?;
        if has_parm_err {
            r.u32("ParmErr")?;
        }
        Ok(Self { name, level, info, has_parm_err })
    }

    /// Returns the stub data of a request to `server`: NetrShareAdd where `name` is empty.
    pub fn encode(&self, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.unique_string(Some(server));
        if !self.name.is_empty() {
            w.string(&self.name);
        }
        w.u32(self.level);
        write_share(&mut w, self.level, self.info.as_ref().unwrap_or(&ShareInfo::default()));
        w.pointer(self.has_parm_err);
        if self.has_parm_err {
            w.u32(0);
        }
        w.into_stub()
    }

    /// The share to add, MS-SRVS 3.1.4.7.
    pub(crate) fn addition(&self) -> Result<&ShareInfo, Refused> {
        if !matches!(self.level, 2 | 502) {
            return Err((WinError::INVALID_LEVEL, 0));
        }
        let info = self.info.as_ref().ok_or((WinError::INVALID_LEVEL, 0))?;
        let wrong = |member| Err((WinError::INVALID_PARAMETER, member));
        if info.name.is_empty() || utf16_units(&info.name) > NAME_UNITS {
            return wrong(NETNAME);
        }
        if ["pipe", "mailslot"].iter().any(|name| eq_ignore_case(name, &info.name)) {
            return Err((WinError::ACCESS_DENIED, 0));
        }
        if info.kind.0 & !CLUSTER != ShareType::DISKTREE.0 {
            return wrong(TYPE);
        }
        if utf16_units(&info.remark) > REMARK_UNITS {
            return wrong(REMARK);
        }
        let is_step = |part: &str| matches!(part, "." | "..");
        if info.path.is_empty() || info.path.split(['/', '\\']).any(is_step) {
            return wrong(PATH);
        }
        Ok(info)
    }

    /// The settings to change, MS-SRVS 3.1.4.11.
    pub(crate) fn settings(&self) -> Result<ShareSettings, Refused> {
        let info = self.info.as_ref().ok_or((WinError::INVALID_LEVEL, 0))?;
        let remark = matches!(self.level, 1 | 2 | 502 | 1004).then(|| info.remark.clone());
        let max_uses = matches!(self.level, 2 | 502 | 1006).then_some(info.max_uses);
        // Only the levels 502 and 1501 have a security descriptor; other levels leave the share's
        // access list unchanged.
        let security_descriptor = info.security_descriptor.clone();
        match self.level {
            1005 => return Err((WinError::NOT_SUPPORTED, 0)),
            1501 if security_descriptor.is_none() => {
                return Err((WinError::INVALID_PARAMETER, DESCRIPTOR));
            }
            1 | 2 | 502 | 1004 | 1006 | 1501 => {}
            _ => return Err((WinError::INVALID_LEVEL, 0)),
        }
        let settings = ShareSettings { remark, max_uses, security_descriptor };
        if self.name.is_empty() {
            return Err((WinError::INVALID_PARAMETER, 0));
        }
        if utf16_units(&info.remark) > REMARK_UNITS {
            return Err((WinError::INVALID_PARAMETER, REMARK));
        }
        Ok(settings)
    }

    /// Returns the stub data of the reply.
    pub(crate) fn encode_reply(&self, done: Result<(), Refused>) -> Vec<u8> {
        let (status, member) = done.err().unwrap_or((WinError::SUCCESS, 0));
        let mut w = NdrWriter::new();
        w.pointer(self.has_parm_err);
        if self.has_parm_err {
            w.u32(member);
        }
        w.u32(status.0);
        w.into_stub()
    }
}

/// The name of the share that NetrShareDel removes.
pub fn parse_share_del(stub: &[u8]) -> Parsed<String> {
    let mut r = NdrReader::new(stub);
    r.unique_string("ServerName")?;
    let name = r.string("NetName")?.to_string_lossy();
    r.u32("Reserved")?;
    Ok(name)
}
