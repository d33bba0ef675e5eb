//! FileFullEaInformation: MS-SMB2 3.3.5.20.1, MS-FSA 2.1.5.12.12.

use std::collections::{HashMap, HashSet};

use frevo_wire::Status;
use frevo_wire::command::query_info::{self, QueryInfoFlags};
use frevo_wire::fscc::Pushed;
use frevo_wire::fscc::ea::{Ea, EaError, EaFault, EaNames, EaWriter};

use super::Output;
use crate::base::limits::EA_LIST_BYTES;
use crate::objects::open::FileOpen;
use crate::objects::refusal::Refusal;

/// An attribute as it is shown.
struct Stored {
    name: String,
    value: Vec<u8>,
    need: bool,
}

impl Stored {
    fn as_ea(&self) -> Ea<'_> {
        Ea { need: self.need, name: self.name.as_bytes(), value: &self.value }
    }
}

/// The status of a list that cannot be taken.
pub(in crate::command) const fn fault_status(error: EaError) -> Status {
    match error.fault {
        EaFault::Inconsistent => Status::EA_LIST_INCONSISTENT,
        EaFault::InvalidName => Status::INVALID_EA_NAME,
    }
}

/// The extended attributes that the structures can carry.
fn shown(file: &FileOpen) -> Result<Vec<Stored>, Status> {
    let mut all = file.node.eas().map_err(frevo_store::Fault::status)?;
    all.retain(|(name, value)| name.len() < 255 && value.len() <= usize::from(u16::MAX));
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let needed = file.node.needed_eas().map_err(frevo_store::Fault::status)?;
    let needed: HashSet<String> = needed.into_iter().collect();
    let stored = all.into_iter().map(|(name, value)| {
        let need = needed.contains(&name);
        Stored { name, value, need }
    });
    Ok(stored.collect())
}

/// Answers a query of extended attributes.
pub(super) fn query(
    file: &FileOpen,
    request: &query_info::Request<'_>,
    output: &mut Output<'_>,
) -> Result<(), Refusal> {
    let all = shown(file)?;
    let single = request.flags.contains(QueryInfoFlags::RETURN_SINGLE_ENTRY);
    if !request.input.is_empty() {
        return named(&all, request.input, single, output);
    }
    if all.is_empty() {
        return Err(Status::NO_EAS_ON_FILE.into());
    }
    let first = if request.flags.contains(QueryInfoFlags::INDEX_SPECIFIED) {
        let index = usize::try_from(request.additional_information).unwrap_or(usize::MAX);
        index.checked_sub(1).filter(|at| *at < all.len()).ok_or(Status::NONEXISTENT_EA_ENTRY)?
    } else if request.flags.contains(QueryInfoFlags::RESTART_SCAN) {
        0
    } else {
        file.enumeration.lock().as_ref().map_or(0, |e| e.next_ea)
    };
    // As on Windows, a scan that has returned all extended attributes ends with NO_MORE_EAS.
    let rest = all.get(first..).filter(|rest| !rest.is_empty()).ok_or(Status::NO_MORE_EAS)?;
    let written = write(rest.iter().map(Stored::as_ea), single, output)?;
    file.enumeration.lock().get_or_insert_default().next_ea = first + written;
    Ok(())
}

/// The extended attributes that the client names, in its order. One that the file does not
/// have is answered without a value, as on NTFS.
fn named(
    all: &[Stored],
    list: &[u8],
    single: bool,
    output: &mut Output<'_>,
) -> Result<(), Refusal> {
    if list.len() > EA_LIST_BYTES {
        return Err(Status::EA_LIST_INCONSISTENT.into());
    }
    let names: Vec<&[u8]> = EaNames::new(list).collect::<Result<_, _>>().map_err(fault_status)?;
    let all: HashMap<Vec<u8>, &Stored> =
        all.iter().map(|ea| (ea.name.as_bytes().to_ascii_uppercase(), ea)).rev().collect();
    let wanted = names.iter().map(|name| {
        let found = all.get(&name.to_ascii_uppercase());
        found.map_or(Ea { need: false, name, value: &[] }, |ea| ea.as_ea())
    });
    write(wanted, single, output)?;
    Ok(())
}

/// Writes whole entries as long as they fit; how many. BUFFER_TOO_SMALL, with
/// the size needed, when not even the first does.
fn write<'a>(
    wanted: impl Iterator<Item = Ea<'a>>,
    single: bool,
    output: &mut Output<'_>,
) -> Result<usize, Refusal> {
    let room = output.room;
    let mut writer = EaWriter::new(output.bytes(), room);
    let mut written = 0;
    for ea in wanted {
        if single && written == 1 {
            return Ok(written);
        }
        if writer.push(&ea) == Pushed::Full {
            if written > 0 {
                output.overflowed = true;
                return Ok(written);
            }
            let needed = u32::try_from(9 + ea.name.len() + ea.value.len()).unwrap_or(u32::MAX);
            return Err(Refusal::Data(Status::BUFFER_TOO_SMALL, needed.to_le_bytes().into()));
        }
        written += 1;
    }
    Ok(written)
}
