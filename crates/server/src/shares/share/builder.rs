//! The options of a share.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Compress, MAX_OFFSET, RecycleBin, RunAs, Share, UserFolders};
use crate::access::access_rules::Rules;
use crate::access::id_map::IdMap;
use crate::audit::ShareAudit;
use crate::shares::brake::{Brake, BrakeRules};
use crate::shares::guests::GuestAccess;
use crate::shares::index::{IndexRules, ShareIndex};
use crate::shares::scanning::Scanning;
use crate::shares::time_machine::Limit;
use crate::shares::write_once::WriteOnce;

/// Writes a method for each option that is on or off.
macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident: $field:ident),* $(,)?) => {
        impl Share {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(self, is_on: bool) -> Self {
                    Self { $field: is_on, ..self }
                }
            )*
        }
    };
}

switches! {
    /// True lets nobody write, but for the `write_list` of the rules. False unless set.
    read_only: read_only,
    /// True demands encryption (Share.EncryptData). False unless set.
    encrypt: encrypt,
    /// True for Opens that can be persistent (Share.IsCA); see
    /// [`ServerBuilder::state_store`](crate::ServerBuilder::state_store). False unless set.
    continuous: continuous,
    /// True leaves the share out of listings. False unless set.
    hidden: hidden,
    /// True hides files from users that cannot read them
    /// (Share.DoAccessBasedDirectoryEnumeration). False unless set.
    hide_unreadable: hide_unreadable,
    /// True gives POSIX clients POSIX Opens. True unless set.
    posix: posix,
    /// True where names that differ in case only are two. False unless set.
    case_sensitive: is_case_sensitive,
    /// True lets macOS back up here. False unless set.
    time_machine: time_machine,
    /// True lets macOS search by Spotlight here, if the share has an index. False unless set.
    spotlight: spotlight,
    /// True lets clients wait for changes in directories. True unless set.
    change_notify: change_notify,
    /// True moves LastWriteTime two seconds after the first write, or when the file is flushed or
    /// closed. False unless set.
    late_write_times: late_write_times,
    /// True keeps data of Opens with FILE_NO_INTERMEDIATE_BUFFERING in the host's page cache, like
    /// that of others. True unless set.
    cache_unbuffered: cache_unbuffered,
    /// True where an access list that a client sets counts as inherited by its DI bit alone
    /// (MS-DTYP 2.4.6), without the DC bit. False unless set.
    inherited_as_set: inherited_as_set,
    /// True where `/` separates components of names as `\\` does. False unless set.
    forward_slashes: forward_slashes,
    /// True grants oplocks of level II. True unless set.
    level2_oplocks: level2_oplocks,
    /// True for a share that several servers have in turn: this one serves it once it has taken
    /// it. False unless set.
    begins_elsewhere: begins_elsewhere,
    /// True for a share that the servers of a cluster have in turn
    /// ([`ServerBuilder::cluster`](crate::ServerBuilder::cluster)). It begins elsewhere, is served until the
    /// cluster's limit only, and its handles are numbered by the cluster. False unless set.
    clustered: clustered,
    /// True for a clustered share that addresses go with, at which clients find its owner: it is one of
    /// STYPE_CLUSTER_FS. Else it is one of STYPE_CLUSTER_SOFS (MS-SRVS 2.2.2.4). False unless set.
    moving_addresses: moving_addresses,
}

impl Share {
    /// Sets the text that clients see beside the name.
    #[must_use]
    pub fn comment(self, comment: impl Into<String>) -> Self {
        Self { comment: comment.into(), ..self }
    }

    /// Sets the data that is sent compressed. [`Compress::Off`] unless set.
    #[must_use]
    pub fn compress(self, compress: Compress) -> Self {
        Self { compress, ..self }
    }

    /// Sets the users that may connect, and those that may write. Without rules every user may.
    #[must_use]
    pub fn rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Sets the times after which files do not change any more. None: they always do.
    #[must_use]
    pub fn write_once(self, rules: impl Into<Option<WriteOnce>>) -> Self {
        Self { write_once: rules.into().map(Arc::new), ..self }
    }

    /// Sets the rules of the brake on clients that change files as ransomware does. None: no client is looked at.
    #[must_use]
    pub fn brake(self, rules: impl Into<Option<BrakeRules>>) -> Self {
        Self { brake: rules.into().map(|rules| Arc::new(Brake::new(rules))), ..self }
    }

    /// Sets the file in which the brake keeps a journal of changes, by which those of a session can be undone. It does
    /// nothing on a share without a brake.
    #[must_use]
    pub fn brake_journal(self, path: impl Into<Option<PathBuf>>) -> Self {
        let brake = match (self.brake, path.into()) {
            (Some(brake), Some(path)) => {
                Some(Arc::new(Arc::unwrap_or_clone(brake).with_journal(path)))
            }
            (brake, _) => brake,
        };
        Self { brake, ..self }
    }

    /// Sets the scans of its files for viruses. None: they are not scanned.
    #[doc(hidden)]
    #[must_use]
    pub fn scanning(self, scanning: impl Into<Option<Scanning>>) -> Self {
        Self { scanning: scanning.into().map(Arc::new), ..self }
    }

    /// Sets the rules of an index of its names, sizes and dates, in which clients search. None: there is none.
    #[doc(hidden)]
    #[must_use]
    pub fn index(self, rules: impl Into<Option<IndexRules>>) -> Self {
        let index = rules.into().map(|rules| Arc::new(ShareIndex::new(rules)));
        Self { index, ..self }
    }

    /// Sets the rights of clients without an account. None: there are no guests.
    #[must_use]
    pub fn guest(self, guest: impl Into<Option<GuestAccess>>) -> Self {
        Self { guest: guest.into(), ..self }
    }

    /// Sets the user of the host as which files are used: the server's user unless set.
    #[must_use]
    pub fn run_as(self, run_as: RunAs) -> Self {
        Self { run_as, ..self }
    }

    /// Sets the number of the host's group that is the primary group of all users, with
    /// [`RunAs::User`]. None: the user's own.
    #[must_use]
    pub fn force_group(self, group: impl Into<Option<u32>>) -> Self {
        Self { force_group: group.into(), ..self }
    }

    /// Sets the path of the folder on the host, which administrators are told over the network.
    #[must_use]
    pub fn host_path<'a>(self, path: impl Into<Option<&'a str>>) -> Self {
        Self { host_path: path.into().map(str::to_owned), ..self }
    }

    /// Sets the bytes that backups of macOS may take. None: all that there is.
    #[must_use]
    pub fn time_machine_limit(self, bytes: impl Into<Option<u64>>) -> Self {
        let limit = bytes.into().map(|bytes| Arc::new(Limit::new(bytes)));
        Self { time_machine_limit: limit, ..self }
    }

    /// Sets the size that no file exceeds (Volume.MaxFileSize of MS-FSA 2.1.1.1), bytes. None: the
    /// largest offset that a file can have.
    #[must_use]
    pub fn max_file_size(self, bytes: impl Into<Option<u64>>) -> Self {
        let max_file_size = bytes.into().map_or(MAX_OFFSET, |bytes| bytes.min(MAX_OFFSET));
        Self { max_file_size, ..self }
    }

    /// Sets the most tree connects at one time (Share.MaxUses). None: as many as there is room for.
    #[must_use]
    pub fn max_connections(self, most: impl Into<Option<usize>>) -> Self {
        Self { max_connections: most.into(), ..self }
    }

    /// Carries out its requests on threads beside the cores. It is for a file system whose
    /// calls may take longer than some milliseconds: other clients do not wait for it.
    #[must_use]
    pub fn off_core(self) -> Self {
        Self { blocking_pool: Some(Arc::default()), asks_off_core: false, ..self }
    }

    /// Does so only while the file system says that a call may wait
    /// ([`Vfs::may_wait`](crate::Vfs::may_wait)), and for a minute after a call that was slow.
    #[must_use]
    pub fn off_core_while_waiting(self) -> Self {
        Self { asks_off_core: true, ..self.off_core() }
    }

    /// Sets the audit log, and the operations on files of the share that it records. A share that
    /// is not told has those of [`ServerBuilder::audited`](crate::ServerBuilder::audited).
    #[must_use]
    pub fn audit(self, audit: impl Into<Option<ShareAudit>>) -> Self {
        Self { audit: audit.into(), ..self }
    }

    /// Shows each user a folder of the user's own in place of the share's file system. A share that
    /// is called [`USER`](super::USER) has each user's own name too.
    #[must_use]
    pub fn user_folders(self, folders: impl Into<Option<UserFolders>>) -> Self {
        Self { user_folders: folders.into(), ..self }
    }

    /// Moves deleted files to a recycle bin. None: they are gone.
    #[must_use]
    pub fn recycle(self, bin: impl Into<Option<RecycleBin>>) -> Self {
        Self { recycle: bin.into().map(Arc::new), ..self }
    }

    /// Sets the numbers of the host for users and groups of domains:
    /// those of [`Settings::id_map`](crate::Settings::id_map).
    #[must_use]
    pub fn id_map(self, map: Arc<IdMap>) -> Self {
        Self { id_map: map, ..self }
    }
}

#[cfg(test)]
#[cfg(feature = "posix")]
mod tests {
    use frevo_posix::{PosixOptions, PosixVfs};
    use frevo_store::Vfs;

    use super::*;
    use crate::base::limits::FOLDER_IDLE_LOOKS;
    use crate::shares::folders::{Look, ShareFolder, look_at_folder};

    /// Tests that requests leave the core while their folder is closed, unless the share says
    /// another.
    #[test]
    fn a_closed_folder_is_opened_beside_the_core() {
        let place = tempfile::tempdir().unwrap();
        let share = |vfs: &Arc<dyn Vfs>| Share::disk("a", Arc::clone(vfs));
        for (off_core, while_open, while_closed) in
            [(None, false, true), (Some(true), true, true), (Some(false), false, false)]
        {
            let root = place.path().to_owned();
            let opener = move || PosixVfs::open_root(&root, PosixOptions::default());
            let folder = ShareFolder::open(place.path(), Box::new(opener)).unwrap();
            let vfs: Arc<dyn Vfs> = Arc::new(folder);
            let share = match off_core {
                None => share(&vfs).off_core_while_waiting(),
                Some(true) => share(&vfs).off_core(),
                Some(false) => share(&vfs),
            };
            share.slowness.end_trial();
            assert_eq!(share.pool().is_some(), while_open, "{off_core:?}");
            (0..=FOLDER_IDLE_LOOKS).for_each(|_| look_at_folder(&*vfs, Look::Timed));
            assert_eq!(share.pool().is_some(), while_closed, "{off_core:?}");
        }
    }
}
