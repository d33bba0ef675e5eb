//! Looks at the folders of shares, for administrators: a folder that was removed, a disk that
//! fails, a server of files that does not answer.

use frevo_store::vfs::{Fault, Space};
use frevo_store::{Name, Vfs};

use crate::objects::server::ServerState;
use crate::shares::folders;
use crate::shares::share::Target;

/// The space of a share's file system, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareSpace {
    /// Size of the file system.
    pub total: u64,
    /// Free bytes that the server may use.
    pub available: u64,
}

/// Looks at the folder of a share. None when there is no such share, or it has no folder.
pub(super) fn share(server: &ServerState, name: &str) -> Option<Result<ShareSpace, String>> {
    let share = server.shares().find(name).cloned()?;
    let Target::Disk(vfs) = &share.target else { return None };
    Some(match folders::probe_folder(&**vfs) {
        Some(probed) => probed.map(in_bytes),
        None => look(&**vfs).map_err(reason),
    })
}

fn look(vfs: &dyn Vfs) -> Result<ShareSpace, Fault> {
    if vfs.stat(&Name::root())?.links == 0 {
        return Err(Fault::NotFound);
    }
    vfs.space().map(in_bytes)
}

fn in_bytes(space: Space) -> ShareSpace {
    let bytes = |units: u64| units.saturating_mul(u64::from(space.unit));
    ShareSpace { total: bytes(space.total), available: bytes(space.available) }
}

fn reason(fault: Fault) -> String {
    match fault {
        Fault::NotFound | Fault::PathNotFound | Fault::Stale => String::from(
            "its folder was removed; restart the server once another one is in its place",
        ),
        Fault::AccessDenied => String::from("the server may not read its folder"),
        Fault::Io(errno) => {
            let error = std::io::Error::from_raw_os_error(errno);
            format!("its disk or file server failed: {error}")
        }
        other => format!("its folder cannot be looked at: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_for_people() {
        assert!(reason(Fault::NotFound).contains("was removed"));
        let failed = reason(Fault::Io(5));
        assert!(failed.contains("Input/output error"), "{failed}");
        let space = look(&*super::super::vfs::memory(64 << 20)).unwrap();
        assert!(space.total >= space.available && space.available > 0, "{space:?}");
    }
}
