//! Structures of MS-FSCC and MS-DTYP that clients send.

use frevo_wire::codec::Writer;
use frevo_wire::command::query_info::QueryQuotaInfo;
use frevo_wire::dtyp::{Acl, SecurityDescriptor, Sid};
use frevo_wire::fscc::ea::{EaEntries, EaNames};
use frevo_wire::fscc::reparse::ReparseBuffer;
use frevo_wire::fscc::{Pattern, fsctl, layout, query, quota, set};

/// Parses the structures of SET_INFO and IOCTL; the first byte selects one.
pub fn set_structures(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 12 {
        0 => drop(set::FileRenameInformation::parse(data).map(|it| it.name.decode())),
        1 => drop(set::FileRenameInformationEx::parse(data).map(|it| it.name.decode())),
        2 => {
            let good = EaEntries::check(data);
            let walked = EaEntries::new(data).take_while(Result::is_ok).count();
            assert_eq!(good.ok().unwrap_or(walked), walked);
            assert!(walked <= data.len() / 8 + 1, "each takes its bytes");
        }
        3 => EaNames::new(data).for_each(drop),
        4 => {
            if let Ok(buffer) = ReparseBuffer::parse(data) {
                let _ = buffer.meaning();
                let mut out = Vec::new();
                if buffer.encode(&mut Writer::new(&mut out)).is_some() {
                    assert_eq!(ReparseBuffer::parse(&out), Ok(buffer));
                }
            }
        }
        5 => {
            if let Ok(trim) = fsctl::TrimRequest::parse(data) {
                assert!(trim.ranges().count() <= data.len() / 16);
            }
        }
        6 => {
            let _ = fsctl::parse_set_sparse(data);
            let _ = fsctl::IntegrityInformation::parse(data);
            let _ = fsctl::SetIntegrityInformation::parse(data);
            let _ = layout::MarkHandle::parse(data);
            let _ = layout::ReadFileUsnData::parse(data);
            let _ = layout::StartingVcn::parse(data);
        }
        7 => quota::QuotaEntries::new(data).for_each(drop),
        8 => quota::QuotaSids::new(data).for_each(drop),
        9 => drop(QueryQuotaInfo::parse(data)),
        10 => {
            let _ = set::FileDispositionInformation::parse(data);
            let _ = set::FileDispositionInformationEx::parse(data);
            let _ = set::FileAllocationInformation::parse(data);
            let _ = set::FileEndOfFileInformation::parse(data);
            let _ = set::FileValidDataLengthInformation::parse(data);
            let _ = query::FileBasicInformation::parse(data);
            let _ = query::FilePositionInformation::parse(data);
            let _ = query::FileModeInformation::parse(data);
        }
        _ => {
            // The fuzz input is a pattern and the names to match it against, separated by NULs.
            let text = String::from_utf8_lossy(data);
            let (expression, names) = text.split_once('\0').unwrap_or((&text, "name.txt"));
            let pattern = Pattern::new(expression, true);
            for name in names.split('\0').filter(|name| !name.is_empty()).take(8) {
                let matches = pattern.matches(name);
                assert!(!pattern.matches_all() || matches);
            }
        }
    }
}

/// Security descriptors, lists and identifiers.
pub fn security_descriptors(data: &[u8]) {
    if let Ok(descriptor) = SecurityDescriptor::parse(data) {
        let mut out = Vec::new();
        if descriptor.encode(&mut out).is_ok() {
            assert_eq!(out.len(), descriptor.encoded_len());
            let again = SecurityDescriptor::parse(&out).expect("what we build we read");
            let mut twice = Vec::new();
            again.encode(&mut twice).expect("it fitted before");
            assert_eq!(twice, out);
        }
    }
    if let Ok(acl) = Acl::parse(data) {
        let mut out = Vec::new();
        if acl.encode(&mut Writer::new(&mut out)).is_ok() {
            assert_eq!(out.len(), acl.encoded_len());
            assert_eq!(Acl::parse(&out).as_ref(), Ok(&acl));
        }
    }
    if let Ok(sid) = Sid::parse(data) {
        let _ = sid.to_string();
    }
}
