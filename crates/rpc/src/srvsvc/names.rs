//! Names that clients have checked before they use them, MS-SRVS 3.1.4.32.

use crate::WinError;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::Parsed;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// The default invalid characters, besides control characters.
const INVALID: &str = "\"/\\[]:|<>+=;,?";

/// Flags that Windows takes, MS-SRVS 3.1.4.32 note 120.
const FLAGS: [u32; 2] = [0, 0x8000_0000];

/// The names of one type, MS-SRVS 2.2.2.8. Lengths are characters of UTF-16.
struct Form {
    shortest: usize,
    longest: usize,
    invalid: &'static [&'static str],
    /// True if no blank may be at the beginning or the end.
    is_trimmed: bool,
    /// True if `*` may be the last character, and must be that of a longest name.
    may_end_in_star: bool,
}

impl Form {
    const fn plain(longest: usize) -> Self {
        let invalid = &[INVALID];
        Self { shortest: 1, longest, invalid, is_trimmed: false, may_end_in_star: false }
    }

    /// Passwords, which have any character but NUL.
    const fn secret(longest: usize) -> Self {
        Self { shortest: 0, invalid: &[], ..Self::plain(longest) }
    }

    /// The form of a NameType; None for values that are none.
    const fn of(kind: u32) -> Option<Self> {
        Some(match kind {
            // NAMETYPE_USER and NAMETYPE_GROUP
            1 | 3 => Self::plain(256),
            // NAMETYPE_PASSWORD
            2 => Self::secret(256),
            // NAMETYPE_COMPUTER
            4 => Self { invalid: &[INVALID, "*"], is_trimmed: true, ..Self::plain(260) },
            // NAMETYPE_EVENT
            5 => Self::plain(16),
            // NAMETYPE_DOMAIN
            6 => Self { invalid: &[INVALID, "* "], ..Self::plain(15) },
            // NAMETYPE_SERVICE and NAMETYPE_SHARE
            7 | 9 => Self::plain(80),
            // NAMETYPE_NET
            8 => Self::plain(260),
            // NAMETYPE_MESSAGE and NAMETYPE_WORKGROUP
            10 | 13 => Self::plain(15),
            // NAMETYPE_MESSAGEDEST
            11 => Self { may_end_in_star: true, ..Self::plain(260) },
            // NAMETYPE_SHAREPASSWORD
            12 => Self::secret(8),
            _ => return None,
        })
    }

    fn takes(&self, name: &str) -> bool {
        let length = name.encode_utf16().count();
        if !(self.shortest..=self.longest).contains(&length) {
            return false;
        }
        let is_trimmed = !(name.starts_with(' ') || name.ends_with(' '));
        let is_valid = |character: char| {
            let is_control = character < ' ' && !self.invalid.is_empty();
            !is_control && !self.invalid.iter().any(|set| set.contains(character))
        };
        let stars = match (self.may_end_in_star, name.strip_suffix('*')) {
            (false, _) => true,
            (true, Some(rest)) => !rest.contains('*'),
            (true, None) => !name.contains('*') && length < self.longest,
        };
        (is_trimmed || !self.is_trimmed) && stars && name.chars().all(is_valid)
    }
}

/// Arguments of NetprNameValidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameValidate {
    /// Name
    pub name: String,
    /// NameType
    pub kind: u32,
    /// Flags
    pub flags: u32,
}

impl NameValidate {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        r.unique_string("ServerName")?;
        let name = r.string("NetprNameValidate Name")?.to_string_lossy();
        let kind = r.u32("NetprNameValidate NameType")?;
        Ok(Self { name, kind, flags: r.u32("NetprNameValidate Flags")? })
    }

    /// Stub data of a request to `server`, which is `\\name`.
    pub fn encode(&self, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.unique_string(Some(server)).string(&self.name).u32(self.kind).u32(self.flags);
        w.into_stub()
    }

    /// The answer.
    pub fn judge(&self) -> WinError {
        match Form::of(self.kind).filter(|_| FLAGS.contains(&self.flags)) {
            None => WinError::INVALID_PARAMETER,
            Some(form) if form.takes(&self.name) => WinError::SUCCESS,
            Some(_) => WinError::INVALID_NAME,
        }
    }
}
