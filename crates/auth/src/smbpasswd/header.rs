//! The line of an account file that belongs to all accounts.

use core::fmt;
use frevo_wire::dtyp::Sid;

/// The first word of the header line.
const MARK: &str = "#!frevo ";
/// The newest format of the file that is understood.
const VERSION: u32 = 2;
/// The identifier authority and the first sub-authority of a machine's SID, MS-DTYP 2.4.2.4.
const MACHINE: (u64, u32) = (5, 21);

/// Facts about all accounts of a file:
/// `#!frevo accounts 2 sid=S-1-5-21-1-2-3 next-rid=1005 samba`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// The SID of the machine, below which the accounts have theirs. None until a server has kept
    /// one.
    pub machine: Option<Sid>,
    /// True for the SID of a Samba server, whose lists also name users and groups of the host.
    pub is_samba: bool,
    /// The least relative identifier of a new account, if it is more than the accounts tell.
    pub(super) next_rid: Option<u32>,
}

impl Header {
    /// Longest line in bytes.
    pub(super) const LEN_MAX: usize = 128;

    /// Parses a line; `None` for a line of another kind.
    pub(super) fn parse(line: &str) -> Result<Option<Self>, &'static str> {
        let Some(rest) = line.strip_prefix(MARK) else { return Ok(None) };
        let mut words = rest.split_ascii_whitespace();
        if words.next() != Some("accounts") {
            return Err("#!frevo is not followed by accounts");
        }
        let version = words.next().and_then(|version| version.parse::<u32>().ok());
        if version.is_none_or(|version| version > VERSION) {
            return Err("the file is of a newer version of Frevo");
        }
        let mut header = Self::default();
        for word in words {
            match word.split_once('=') {
                Some(("sid", sid)) => {
                    let sid = sid.parse().ok().filter(is_machine);
                    header.machine = Some(sid.ok_or("sid= is not followed by S-1-5-21-A-B-C")?);
                }
                Some(("next-rid", rid)) => {
                    let rid = rid.parse().map_err(|_| "next-rid= is not followed by a number")?;
                    header.next_rid = Some(rid);
                }
                None if word == "samba" => header.is_samba = true,
                _ => return Err("the line has a word that is unknown"),
            }
        }
        Ok(Some(header))
    }
}

/// True for `S-1-5-21-A-B-C`.
fn is_machine(sid: &Sid) -> bool {
    sid.authority() == MACHINE.0
        && matches!(sid.sub_authorities(), [first, _, _, _] if *first == MACHINE.1)
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}accounts {VERSION}")?;
        if let Some(sid) = &self.machine {
            write!(f, " sid={sid}")?;
        }
        if let Some(rid) = self.next_rid {
            write!(f, " next-rid={rid}")?;
        }
        if self.is_samba { f.write_str(" samba") } else { Ok(()) }
    }
}
