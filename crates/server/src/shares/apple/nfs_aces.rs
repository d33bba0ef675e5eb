//! Owner, group and mode as macOS reads and sets them: entries of the access
//! control list for S-1-5-88-1, -2 and -3 that grant nothing and deny nothing.

use frevo_store::vfs::{BasicChange, Kind};
use frevo_store::{Fault, Node, Stat};
use frevo_wire::Status;
use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, SecurityDescriptor, Sid};

/// S-1-5-88, as Windows' server for NFS has it.
const AUTHORITY: u64 = 5;
const NFS: u32 = 88;
const OWNER: u32 = 1;
const GROUP: u32 = 2;
const MODE: u32 = 3;

/// Kind and number of such an entry.
fn number(ace: &Ace) -> Option<(u32, u32)> {
    let sid = ace.sid()?;
    match (sid.authority(), sid.sub_authorities()) {
        (AUTHORITY, [NFS, kind @ OWNER..=MODE, number]) => Some((*kind, *number)),
        _ => None,
    }
}

/// Says in `descriptor` what the host says of the file.
pub(crate) fn add(descriptor: &mut SecurityDescriptor, stat: &Stat) {
    let Some(dacl) = &mut descriptor.dacl else { return };
    dacl.aces.retain(|ace| number(ace).is_none());
    let mode = u32::from(mode(stat));
    for (kind, number) in [(MODE, mode), (OWNER, stat.uid), (GROUP, stat.gid)] {
        if let Some(sid) = Sid::new(AUTHORITY, &[NFS, kind, number]) {
            dacl.aces.push(Ace::deny(AceFlags::EMPTY, AccessMask::EMPTY, sid));
        }
    }
}

/// Takes the entries out of what is set; the mode that they ask for. A list of
/// nothing else is no list: it was sent for the mode's sake.
pub(crate) fn take(descriptor: &mut SecurityDescriptor) -> Option<u32> {
    let dacl = descriptor.dacl.as_mut()?;
    let found = dacl.aces.iter().filter_map(number).find(|(kind, _)| *kind == MODE);
    let before = dacl.aces.len();
    dacl.aces.retain(|ace| number(ace).is_none());
    if dacl.aces.is_empty() && before != 0 {
        descriptor.dacl = None;
    }
    found.map(|(_, mode)| mode & 0o777)
}

/// Changes the mode from that of `stat`, if it is another. A stored list is out of force then, as
/// after a `chmod` on the host.
pub(crate) fn set_mode(node: &dyn Node, stat: &Stat, mode: Option<u32>) -> Result<(), Status> {
    let old = stat.mode;
    let Some(mode) = mode.map(|mode| old & !0o777 | mode).filter(|mode| *mode != old) else {
        return Ok(());
    };
    let change = BasicChange { mode: Some(mode & 0o7777), ..BasicChange::default() };
    node.set_basic(&change).map_err(Fault::status)
}

/// The mode as `stat` has it, type and all.
pub(crate) fn mode(stat: &Stat) -> u16 {
    let kind: u16 = match stat.kind {
        Kind::Fifo => 0o010_000,
        Kind::CharDevice => 0o020_000,
        Kind::Directory => 0o040_000,
        Kind::BlockDevice => 0o060_000,
        Kind::File => 0o100_000,
        Kind::Symlink => 0o120_000,
        Kind::Socket => 0o140_000,
    };
    kind | u16::try_from(stat.mode & 0o7777).unwrap_or_default()
}
