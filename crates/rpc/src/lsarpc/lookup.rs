//! LsarLookupSids and LsarLookupNames with their successors, MS-LSAT 3.1.4.

use super::super::limits::MAX_LOOKUPS;
use super::super::{Domain, SidNameUse};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::Sid;
use frevo_wire::ndr::ContextHandle;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// LsapLookupWksta, MS-LSAT 2.2.16: the only scope of a server that is no domain controller.
const LOOKUP_WKSTA: u16 = 1;

/// LookupOptions of a client that wants isolated names in the local accounts only.
const LOCAL_NAMES_ONLY: u32 = 0x8000_0000;

/// ClientRevision of a client that knows no newer features.
const CLIENT_REVISION: u32 = 2;

/// Which of the calls that take SIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SidsForm {
    /// LsarLookupSids
    Sids,
    /// LsarLookupSids2
    Sids2,
}

/// Which of the calls that take names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamesForm {
    /// LsarLookupNames: relative identifiers.
    Names,
    /// LsarLookupNames2: and flags.
    Names2,
    /// LsarLookupNames3: whole SIDs.
    Names3,
}

/// Arguments of the calls that take SIDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupSids {
    /// PolicyHandle
    pub policy: ContextHandle,
    /// SidEnumBuffer
    pub sids: Vec<Sid>,
    /// True if LookupLevel is one that a server without a domain supports.
    pub is_local: bool,
}

impl LookupSids {
    /// Parses the stub data.
    pub fn parse(stub: &[u8], form: SidsForm) -> Parsed<Self> {
        const WHAT: &str = "LSAPR_SID_ENUM_BUFFER";
        let mut r = NdrReader::new(stub);
        let policy = r.handle("LsarLookupSids PolicyHandle")?;
        let entries = r.u32(WHAT)?;
        let mut sids = Vec::new();
        if r.pointer(WHAT)? {
            // Each entry takes at least 16 bytes (pointer, count and the shortest SID), which
            // limits their number.
            let count = r.array(entries, 16, WHAT)?;
            for _ in 0..count {
                // MS-LSAT 2.2.17: the pointer to a SID must not be null.
                if !r.pointer(WHAT)? {
                    return Err(Malformed::new(WHAT));
                }
            }
            sids.reserve_exact(count);
            for _ in 0..count {
                sids.push(r.sid(WHAT)?);
            }
        } else if entries != 0 {
            return Err(Malformed::new(WHAT));
        }
        let translated = match form {
            SidsForm::Sids2 => Translated::NamesEx,
            _ => Translated::Names,
        };
        skip_translated(&mut r, translated)?;
        let is_local = r.u16("LsarLookupSids LookupLevel")? == LOOKUP_WKSTA;
        r.u32("LsarLookupSids MappedCount")?;
        if form == SidsForm::Sids2 {
            r.u32("LsarLookupSids2 LookupOptions")?;
            r.u32("LsarLookupSids2 ClientRevision")?;
        }
        Ok(Self { policy, sids, is_local })
    }

    /// Stub data of LsarLookupSids2.
    pub fn encode(policy: &ContextHandle, sids: &[Sid]) -> Vec<u8> {
        let mut w = NdrWriter::new();
        let count = u32::try_from(sids.len()).unwrap_or(u32::MAX);
        w.handle(policy).u32(count).pointer(true).u32(count);
        for _ in sids {
            w.pointer(true);
        }
        for sid in sids {
            w.sid(sid);
        }
        w.u32(0).pointer(false).u16(LOOKUP_WKSTA).u32(0).u32(0).u32(CLIENT_REVISION);
        w.into_stub()
    }
}

/// Arguments of the calls that take names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupNames {
    /// PolicyHandle
    pub policy: ContextHandle,
    /// Names; none where one is no UTF-16.
    pub names: Vec<Option<String>>,
    /// True if LookupLevel and LookupOptions are supported by a server that is no domain controller.
    pub is_local: bool,
    /// True if isolated names are those of local accounts only.
    pub local_only: bool,
}

impl LookupNames {
    /// Parses the stub data.
    pub fn parse(stub: &[u8], form: NamesForm) -> Parsed<Self> {
        const WHAT: &str = "LsarLookupNames Names";
        let mut r = NdrReader::new(stub);
        let policy = r.handle("LsarLookupNames PolicyHandle")?;
        let count = r.u32(WHAT)?;
        let count = r.array(count, 8, WHAT)?;
        if count > MAX_LOOKUPS {
            return Err(Malformed::new(WHAT));
        }
        let heads = (0..count).map(|_| r.unicode_head(WHAT)).collect::<Parsed<Vec<_>>>()?;
        let name = |head| r.unicode(head, WHAT).map(|name| name.decode().ok());
        let names = heads.into_iter().map(name).collect::<Parsed<Vec<_>>>()?;
        let translated = match form {
            NamesForm::Names => Translated::Sids,
            NamesForm::Names2 => Translated::SidsEx,
            NamesForm::Names3 => Translated::SidsEx2,
        };
        skip_translated(&mut r, translated)?;
        let level = r.u16("LsarLookupNames LookupLevel")?;
        r.u32("LsarLookupNames MappedCount")?;
        let mut options = 0;
        if form != NamesForm::Names {
            options = r.u32("LsarLookupNames LookupOptions")?;
            r.u32("LsarLookupNames ClientRevision")?;
        }
        // MS-LSAT 3.1.4.7: only LsarLookupNames3 evaluates the options; the older calls ignore
        // them.
        let known = form != NamesForm::Names3 || matches!(options, 0 | LOCAL_NAMES_ONLY);
        let local_only = form == NamesForm::Names3 && options == LOCAL_NAMES_ONLY;
        Ok(Self { policy, names, is_local: level == LOOKUP_WKSTA && known, local_only })
    }

    /// Stub data of LsarLookupNames3.
    pub fn encode(policy: &ContextHandle, names: &[&str]) -> Vec<u8> {
        let mut w = NdrWriter::new();
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        w.handle(policy).u32(count).u32(count);
        for name in names {
            w.unicode_head(name, 0);
        }
        for name in names {
            w.unicode(name, 0);
        }
        w.u32(0).pointer(false).u16(LOOKUP_WKSTA).u32(0).u32(0).u32(CLIENT_REVISION);
        w.into_stub()
    }
}

/// The form of TranslatedNames or TranslatedSids.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Translated {
    Names,
    NamesEx,
    Sids,
    SidsEx,
    SidsEx2,
}

/// Skips TranslatedNames or TranslatedSids in a request, which are ignored: MS-LSAT 3.1.4.6 to
/// 3.1.4.11.
fn skip_translated(r: &mut NdrReader<'_>, form: Translated) -> Parsed<()> {
    const WHAT: &str = "LsarLookup translated";
    let entries = r.u32(WHAT)?;
    if !r.pointer(WHAT)? {
        return Ok(());
    }
    let count = r.array(entries, 12, WHAT)?;
    let (mut names, mut sids) = (Vec::new(), 0_usize);
    for _ in 0..count {
        r.u16("LsarLookup Use")?;
        match form {
            Translated::Names | Translated::NamesEx => names.push(r.unicode_head(WHAT)?),
            Translated::Sids | Translated::SidsEx => drop(r.u32("LsarLookup RelativeId")?),
            Translated::SidsEx2 => sids = sids.saturating_add(usize::from(r.pointer(WHAT)?)),
        }
        r.u32("LsarLookup DomainIndex")?;
        if !matches!(form, Translated::Names | Translated::Sids) {
            r.u32("LsarLookup Flags")?;
        }
    }
    for name in names {
        r.unicode(name, WHAT)?;
    }
    for _ in 0..sids {
        r.sid_or_none(WHAT)?;
    }
    Ok(())
}

/// A name that was found for a SID, MS-LSAT 2.2.19 and 2.2.21.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedName {
    /// Use
    pub kind: SidNameUse,
    /// Name
    pub name: String,
    /// DomainIndex, if it is in one that is known.
    pub domain: Option<usize>,
}

/// A SID that was found for a name, MS-LSAT 2.2.15 to 2.2.25.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedSid {
    /// Use
    pub kind: SidNameUse,
    /// Sid
    pub sid: Option<Sid>,
    /// DomainIndex, if it is in one that is known.
    pub domain: Option<usize>,
}

impl TranslatedSid {
    /// RelativeId, MS-LSAT 3.1.4.7.
    fn rid(&self) -> u32 {
        match (self.kind, &self.sid) {
            (SidNameUse::DOMAIN, _) => u32::MAX,
            (_, Some(sid)) => sid.split_rid().map_or(u32::MAX, |(_, rid)| rid),
            (_, None) => 0,
        }
    }
}

/// The answer to a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupReply<T> {
    /// ReferencedDomains
    pub domains: Vec<Domain>,
    /// TranslatedNames or TranslatedSids
    pub entries: Vec<T>,
    /// MappedCount
    pub mapped: u32,
    /// The status of the call.
    pub status: Status,
}

/// MaxEntries that Windows says, which nobody reads.
const MAX_ENTRIES: u32 = 32;

fn index(domain: Option<usize>) -> u32 {
    domain.and_then(|index| u32::try_from(index).ok()).unwrap_or(u32::MAX)
}

impl<T> LookupReply<T> {
    /// Nothing but a status.
    pub const fn failed(status: Status) -> Self {
        Self { domains: Vec::new(), entries: Vec::new(), mapped: 0, status }
    }

    /// ReferencedDomains, then how many entries follow.
    fn start(&self) -> NdrWriter {
        let mut w = NdrWriter::new();
        // MS-LSAT 3.1.4.9: a reply with an error has no domains, except with STATUS_NONE_MAPPED.
        let is_told = !self.status.is_error() || self.status == Status::NONE_MAPPED;
        w.pointer(is_told);
        if is_told {
            let count = u32::try_from(self.domains.len()).unwrap_or(u32::MAX);
            w.u32(count).pointer(count > 0).u32(MAX_ENTRIES);
            if count > 0 {
                w.u32(count);
            }
            for domain in &self.domains {
                w.unicode_head(&domain.name, 1).pointer(domain.sid.is_some());
            }
            for domain in &self.domains {
                w.unicode(&domain.name, 1);
                if let Some(sid) = &domain.sid {
                    w.sid(sid);
                }
            }
        }
        let count = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        w.u32(count).pointer(count > 0);
        if count > 0 {
            w.u32(count);
        }
        w
    }

    fn end(&self, mut w: NdrWriter) -> Vec<u8> {
        w.u32(self.mapped).u32(self.status.0);
        w.into_stub()
    }

    /// Takes ReferencedDomains, and how many entries there are: not more than
    /// were `asked` for.
    fn parse_start(
        r: &mut NdrReader<'_>,
        asked: usize,
        size: usize,
    ) -> Parsed<(Vec<Domain>, usize)> {
        const WHAT: &str = "LSAPR_REFERENCED_DOMAIN_LIST";
        let mut domains = Vec::new();
        if r.pointer(WHAT)? {
            let entries = r.u32(WHAT)?;
            let points = r.pointer(WHAT)?;
            r.u32(WHAT)?;
            let count = if points { r.array(entries, 12, WHAT)? } else { 0 };
            let heads = (0..count).map(|_| Ok((r.unicode_head(WHAT)?, r.pointer(WHAT)?)));
            for (name, has_sid) in heads.collect::<Parsed<Vec<_>>>()? {
                let name = r.unicode(name, WHAT)?.to_string_lossy();
                let sid = if has_sid { Some(r.sid(WHAT)?) } else { None };
                domains.push(Domain { name, sid });
            }
        }
        let entries = r.u32("LsarLookup Entries")?;
        let points = r.pointer("LsarLookup entries")?;
        let count = if points { r.array(entries, size, "LsarLookup entries")? } else { 0 };
        if count > asked { Err(Malformed::new("LsarLookup entries")) } else { Ok((domains, count)) }
    }

    fn domain(index: u32, domains: &[Domain]) -> Option<usize> {
        usize::try_from(index).ok().filter(|index| *index < domains.len())
    }
}

impl LookupReply<TranslatedName> {
    /// Stub data of the reply.
    pub fn encode(&self, form: SidsForm) -> Vec<u8> {
        let mut w = self.start();
        for entry in &self.entries {
            w.u16(entry.kind.0).unicode_head(&entry.name, 0).u32(index(entry.domain));
            if form == SidsForm::Sids2 {
                w.u32(0);
            }
        }
        for entry in &self.entries {
            w.unicode(&entry.name, 0);
        }
        self.end(w)
    }

    /// Parses a reply to a call that asked for as many SIDs.
    pub fn parse(stub: &[u8], form: SidsForm, asked: usize) -> Parsed<Self> {
        const WHAT: &str = "LSAPR_TRANSLATED_NAME";
        let mut r = NdrReader::new(stub);
        let (domains, count) = Self::parse_start(&mut r, asked, 16)?;
        let mut heads = Vec::with_capacity(count);
        for _ in 0..count {
            let (kind, name) = (SidNameUse(r.u16(WHAT)?), r.unicode_head(WHAT)?);
            heads.push((kind, name, r.u32(WHAT)?));
            if form == SidsForm::Sids2 {
                r.u32(WHAT)?;
            }
        }
        let mut entries = Vec::with_capacity(count);
        for (kind, name, domain) in heads {
            let name = r.unicode(name, WHAT)?.to_string_lossy();
            entries.push(TranslatedName { kind, name, domain: Self::domain(domain, &domains) });
        }
        let (mapped, status) = (r.u32(WHAT)?, Status(r.u32(WHAT)?));
        Ok(Self { domains, entries, mapped, status })
    }
}

impl LookupReply<TranslatedSid> {
    /// Stub data of the reply.
    pub fn encode(&self, form: NamesForm) -> Vec<u8> {
        let mut w = self.start();
        for entry in &self.entries {
            w.u16(entry.kind.0);
            match form {
                NamesForm::Names3 => w.pointer(entry.sid.is_some()),
                _ => w.u32(entry.rid()),
            };
            w.u32(index(entry.domain));
            if form != NamesForm::Names {
                w.u32(0);
            }
        }
        if form == NamesForm::Names3 {
            for sid in self.entries.iter().filter_map(|entry| entry.sid.as_ref()) {
                w.sid(sid);
            }
        }
        self.end(w)
    }

    /// Parses a reply to a call that asked for as many names.
    pub fn parse(stub: &[u8], form: NamesForm, asked: usize) -> Parsed<Self> {
        const WHAT: &str = "LSAPR_TRANSLATED_SID";
        let mut r = NdrReader::new(stub);
        let (domains, count) = Self::parse_start(&mut r, asked, 12)?;
        let mut heads = Vec::with_capacity(count);
        for _ in 0..count {
            let (kind, rid) = (SidNameUse(r.u16(WHAT)?), r.u32(WHAT)?);
            heads.push((kind, rid, Self::domain(r.u32(WHAT)?, &domains)));
            if form != NamesForm::Names {
                r.u32(WHAT)?;
            }
        }
        let mut entries = Vec::with_capacity(count);
        for (kind, rid, domain) in heads {
            let in_domain = || domains.get(domain?)?.sid;
            let sid = match (form, kind) {
                // In LsarLookupNames3 the field `rid` is a pointer to the whole SID.
                (NamesForm::Names3, _) if rid != 0 => r.sid_or_none(WHAT)?,
                (NamesForm::Names3, _) | (_, SidNameUse::UNKNOWN) => None,
                (_, SidNameUse::DOMAIN) => in_domain(),
                _ => in_domain().and_then(|sid| sid.with_rid(rid)),
            };
            entries.push(TranslatedSid { kind, sid, domain });
        }
        let (mapped, status) = (r.u32(WHAT)?, Status(r.u32(WHAT)?));
        Ok(Self { domains, entries, mapped, status })
    }
}
