//! Lists of accounts as they are shown, MS-SAMR 2.2.8 and 3.1.5.3.

use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::Parsed;
use frevo_wire::ndr::ContextHandle;
use frevo_wire::ndr::{NdrReader, NdrWriter};
use frevo_wire::{Status, open_enum};

open_enum! {
    /// DOMAIN_DISPLAY_INFORMATION, MS-SAMR 2.2.8.12.
    Display(u16) {
        /// DomainDisplayUser
        USER = 1,
        /// DomainDisplayMachine
        MACHINE = 2,
        /// DomainDisplayGroup
        GROUP = 3,
        /// DomainDisplayOemUser
        OEM_USER = 4,
        /// DomainDisplayOemGroup
        OEM_GROUP = 5,
    }
}

/// Arguments of SamrQueryDisplayInformation and its successors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryDisplay {
    /// DomainHandle
    pub handle: ContextHandle,
    /// DisplayInformationClass
    pub class: Display,
    /// Index: how many accounts come before the first.
    pub index: u32,
    /// EntryCount
    pub entry_count: u32,
    /// PreferredMaximumLength
    pub max_len: u32,
}

impl QueryDisplay {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        Ok(Self {
            handle: r.handle("SamrQueryDisplayInformation DomainHandle")?,
            class: Display(r.u16("SamrQueryDisplayInformation DisplayInformationClass")?),
            index: r.u32("SamrQueryDisplayInformation Index")?,
            entry_count: r.u32("SamrQueryDisplayInformation EntryCount")?,
            max_len: r.u32("SamrQueryDisplayInformation PreferredMaximumLength")?,
        })
    }
}

/// Arguments of SamrGetDisplayEnumerationIndex and its successor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplayIndex {
    /// DomainHandle
    pub handle: ContextHandle,
    /// DisplayInformationClass
    pub class: Display,
    /// Prefix; none when it is no UTF-16.
    pub prefix: Option<String>,
}

impl DisplayIndex {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "SamrGetDisplayEnumerationIndex Prefix";
        let mut r = NdrReader::new(stub);
        let handle = r.handle("SamrGetDisplayEnumerationIndex DomainHandle")?;
        let class = Display(r.u16("SamrGetDisplayEnumerationIndex DisplayInformationClass")?);
        let head = r.unicode_head(WHAT)?;
        Ok(Self { handle, class, prefix: r.unicode(head, WHAT)?.decode().ok() })
    }

    /// The stub data of the answer.
    pub fn encode_reply(index: Result<u32, Status>) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.u32(index.unwrap_or(0)).u32(index.err().unwrap_or(Status::SUCCESS).0);
        w.into_stub()
    }
}

/// An account as it is shown. Nothing is known of comments and full names, which
/// are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Index: its place among all, from one on.
    pub index: u32,
    /// Rid
    pub rid: u32,
    /// AccountControl of users, Attributes of groups.
    pub bits: u32,
    /// AccountName
    pub name: String,
}

impl Shown {
    /// Bytes that it takes in an answer of that class, its name among them.
    pub fn size(&self, class: Display) -> usize {
        let units = self.name.encode_utf16().count();
        match class {
            // 36 and 28 bytes are the numbers of an entry and the heads of its strings, three for
            // users and otherwise two. The texts follow.
            Display::USER => units.saturating_mul(2).saturating_add(36),
            Display::OEM_USER | Display::OEM_GROUP => units.saturating_add(12),
            _ => units.saturating_mul(2).saturating_add(28),
        }
    }
}

/// TotalAvailable and TotalReturned, bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Bytes of all entries; 0 for the classes with names in OEM characters.
    pub available: u32,
    /// Bytes of the entries in the answer.
    pub returned: u32,
}

/// Encodes TotalAvailable, TotalReturned and Buffer of SamrQueryDisplayInformation. `class` is a
/// supported one.
pub fn encode_display(class: Display, totals: Totals, shown: &[Shown], status: Status) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.u32(totals.available).u32(totals.returned).u16(class.0).align(4);
    let count = u32::try_from(shown.len()).unwrap_or(u32::MAX);
    w.u32(count).pointer(count > 0);
    if count > 0 {
        w.u32(count);
    }
    let is_oem = matches!(class, Display::OEM_USER | Display::OEM_GROUP);
    // AdminComment is empty, and so is the FullName of users.
    let empty = match class {
        Display::USER => 2,
        Display::MACHINE | Display::GROUP => 1,
        _ => 0,
    };
    for one in shown {
        w.u32(one.index);
        if is_oem {
            let len = u16::try_from(one.name.chars().count()).unwrap_or(u16::MAX);
            w.u16(len).u16(len).pointer(true);
            continue;
        }
        w.u32(one.rid).u32(one.bits).unicode_head(&one.name, 0);
        for _ in 0..empty {
            w.unicode_head("", 0);
        }
    }
    for one in shown {
        if is_oem {
            oem(&mut w, &one.name);
            continue;
        }
        w.unicode(&one.name, 0);
        for _ in 0..empty {
            w.unicode("", 0);
        }
    }
    w.u32(status.0);
    w.into_stub()
}

/// Appends the text of an RPC_STRING. Characters that are not in every code page become question
/// marks.
fn oem(w: &mut NdrWriter, name: &str) {
    let len = u16::try_from(name.chars().count()).unwrap_or(u16::MAX);
    w.u32(len.into()).u32(0).u32(len.into());
    for c in name.chars().take(len.into()) {
        w.u8(u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'?'));
    }
}
