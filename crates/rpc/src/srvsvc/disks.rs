//! The drives of the server: NetrServerDiskEnum, MS-SRVS 3.1.4.19.

use super::super::WinError;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// The only drive. Paths of shares are told below it, so that tools can show them.
const DRIVES: [&str; 1] = ["C:"];

/// Parses the arguments of NetrServerDiskEnum, and returns the level.
pub fn parse_disk_enum(stub: &[u8]) -> Parsed<u32> {
    let what = "NetrServerDiskEnum";
    let mut r = NdrReader::new(stub);
    r.unique_string("ServerName")?;
    let level = r.u32(what)?;
    // Clients send an empty list. A list with entries is parsed, but it and the resume handle are
    // ignored.
    let entries = r.u32(what)?;
    if r.pointer(what)? {
        for _ in 0..r.varying(entries, 8, what)? {
            read_drive(&mut r, what)?;
        }
    }
    r.u32(what)?;
    if r.pointer(what)? {
        r.u32(what)?;
    }
    Ok(level)
}

/// Returns the stub data of the reply.
///
/// Windows: only members of Administrators and Server Operators get the list (MS-SRVS note 86).
pub fn encode_disks(level: u32, may_manage: bool) -> Vec<u8> {
    let status = match level {
        _ if !may_manage => WinError::ACCESS_DENIED,
        0 => WinError::SUCCESS,
        _ => WinError::INVALID_LEVEL,
    };
    let is_told = status == WinError::SUCCESS;
    let drives = DRIVES.iter().filter(|_| is_told);
    let total = u32::try_from(drives.clone().count()).unwrap_or(u32::MAX);
    // MS-SRVS 3.1.4.19: an empty string ends the list and counts in EntriesRead, but not in
    // TotalEntries.
    let read = if is_told { total.saturating_add(1) } else { 0 };
    let mut w = NdrWriter::new();
    w.u32(read).pointer(is_told);
    if is_told {
        w.u32(read).u32(0).u32(read);
        for drive in drives.chain([&""]) {
            write_drive(&mut w, drive);
        }
    }
    // The reply has no ResumeHandle, so its pointer is null.
    w.u32(total).pointer(false).u32(status.0);
    w.into_stub()
}

/// DISK_INFO, MS-SRVS 2.2.4.91: a varying string of three characters.
fn write_drive(w: &mut NdrWriter, drive: &str) {
    let count = u32::try_from(drive.len().saturating_add(1)).unwrap_or(u32::MAX);
    w.u32(0).u32(count);
    drive.bytes().chain([0]).for_each(|letter| {
        w.u16(u16::from(letter));
    });
}

fn read_drive(r: &mut NdrReader<'_>, what: &'static str) -> Parsed<Vec<u16>> {
    let (offset, count) = (r.u32(what)?, r.u32(what)?);
    if offset != 0 || count > 3 {
        return Err(Malformed::new(what));
    }
    (0..count).map(|_| r.u16(what)).collect()
}

/// Parses a reply, and returns the drives.
///
/// # Errors
/// Malformed where the reply has another form.
#[cfg(test)]
pub(crate) fn parse_disks(stub: &[u8]) -> Parsed<Result<Vec<alloc::string::String>, WinError>> {
    let what = "NetrServerDiskEnum reply";
    let mut r = NdrReader::new(stub);
    let read = r.u32(what)?;
    let mut drives = Vec::new();
    if r.pointer(what)? {
        for _ in 0..r.varying(read, 8, what)? {
            let text = read_drive(&mut r, what)?;
            let text = text.split_last().map(|(_, text)| text).unwrap_or_default();
            drives.push(alloc::string::String::from_utf16_lossy(text));
        }
    }
    let total = r.u32(what)?;
    if r.pointer(what)? {
        r.u32(what)?;
    }
    match WinError(r.u32(what)?) {
        WinError::SUCCESS if drives.pop().as_deref() == Some("") => {
            let is_whole = usize::try_from(total) == Ok(drives.len()) && r.remaining() == 0;
            if is_whole { Ok(Ok(drives)) } else { Err(Malformed::new(what)) }
        }
        WinError::SUCCESS => Err(Malformed::new(what)),
        status => Ok(Err(status)),
    }
}
