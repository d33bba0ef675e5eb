//! FileFullEaInformation: MS-FSA 2.1.5.15.6.

use frevo_store::Fault;
use frevo_wire::Status;
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::ea::{Ea, EaEntries};

use super::super::query_info::fault_status;
use crate::open::FileOpen;

/// Bytes of extended attributes that a file may have.
const EA_BYTES: usize = 64 * 1024 - 5;

/// An attribute to be set, or with an empty value taken away.
struct New<'a> {
    name: &'a str,
    value: &'a [u8],
    /// FILE_NEED_EA
    need: bool,
}

impl<'a> New<'a> {
    /// Names are bytes on the wire and text on the medium.
    fn of(ea: &Ea<'a>) -> Result<Self, Status> {
        let name = str::from_utf8(ea.name).map_err(|_| Status::INVALID_EA_NAME)?;
        Ok(Self { name, value: ea.value, need: ea.need })
    }
}

/// What a file had before.
struct Before {
    eas: Vec<(String, Vec<u8>)>,
    needed: Vec<String>,
}

/// All of a list or nothing of it.
pub(super) fn set(file: &FileOpen, list: &[u8]) -> Result<(), Status> {
    EaEntries::check(list).map_err(fault_status)?;
    let stat = file.stat()?;
    if stat.attributes.contains(FileAttributes::REPARSE_POINT) || !file.vfs.volume().xattrs {
        return Err(Status::EAS_NOT_SUPPORTED);
    }
    let new: Vec<New<'_>> = EaEntries::new(list)
        .map(|entry| New::of(&entry.map_err(fault_status)?))
        .collect::<Result<_, _>>()?;
    let before = Before {
        eas: file.node.eas().map_err(Fault::status)?,
        needed: file.node.needed_eas().map_err(Fault::status)?,
    };
    if bytes_after(&before.eas, &new) > EA_BYTES {
        return Err(Status::EA_TOO_LARGE);
    }
    let flags = !before.needed.is_empty() || new.iter().any(|ea| ea.need);
    for (at, ea) in new.iter().enumerate() {
        if let Err(fault) = apply(file, ea, flags) {
            before.restore(file, new.iter().take(at + 1).map(|ea| ea.name));
            return Err(fault.status());
        }
    }
    Ok(())
}

/// What is set takes the flag that comes with it, whatever the old one had. Where
/// nothing has it and nothing gets it, it is not looked for.
fn apply(file: &FileOpen, ea: &New<'_>, flags: bool) -> Result<(), Fault> {
    file.node.set_ea(ea.name, ea.value)?;
    if flags && !ea.value.is_empty() {
        file.node.set_ea_needed(ea.name, ea.need)?;
    }
    Ok(())
}

/// Bytes of all attributes once `new` has been applied to `old`.
fn bytes_after(old: &[(String, Vec<u8>)], new: &[New<'_>]) -> usize {
    let size = |name: &str, value: &[u8]| name.len() + value.len() + 5;
    let is_new = |name: &str| new.iter().any(|ea| ea.name.eq_ignore_ascii_case(name));
    let kept = old.iter().filter(|(name, _)| !is_new(name));
    let added = new.iter().filter(|ea| !ea.value.is_empty());
    kept.map(|(name, value)| size(name, value)).sum::<usize>()
        + added.map(|ea| size(ea.name, ea.value)).sum::<usize>()
}

impl Before {
    /// Puts back what was there. What cannot be put back stays as it is: the client
    /// is told of the first failure.
    fn restore<'a>(&self, file: &FileOpen, names: impl Iterator<Item = &'a str>) {
        for name in names {
            let before = self.eas.iter().find(|(stored, _)| stored.eq_ignore_ascii_case(name));
            let _ = file.node.set_ea(name, before.map_or(&[], |(_, value)| value));
            if before.is_some() {
                let needed = self.needed.iter().any(|needed| needed.eq_ignore_ascii_case(name));
                let _ = file.node.set_ea_needed(name, needed);
            }
        }
    }
}
