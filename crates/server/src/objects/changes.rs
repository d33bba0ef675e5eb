//! Reports changes in a directory to the Opens that watch it: MS-FSA 2.1.4.1.

use std::sync::atomic::Ordering;

use frevo_store::lease::{Actor, Granted, LeaseOwner, V2};
use frevo_store::watch::Filters;
use frevo_store::{FileTable, FolderId, Link, Name};
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::fscc::notify::NotifyAction;

use crate::objects::open::FileOpen;

/// The changes that writing data makes.
pub(crate) const DATA: CompletionFilter =
    CompletionFilter(CompletionFilter::LAST_WRITE.0 | CompletionFilter::SIZE.0);

impl FileOpen {
    /// Where its name is one.
    pub fn folder_id(&self) -> FolderId {
        self.vfs.folder_id()
    }

    /// The filter of the watches that a name is reported to.
    pub const fn names(&self) -> CompletionFilter {
        if self.base.is_some() {
            return CompletionFilter::STREAM_NAME;
        }
        if self.is_directory { CompletionFilter::DIR_NAME } else { CompletionFilter::FILE_NAME }
    }

    /// Reports that something was done to the file, which must not be locked.
    pub fn report(&self, files: &FileTable, action: NotifyAction, matches: CompletionFilter) {
        self.times_moved();
        if matches.intersects(CompletionFilter::SIZE | CompletionFilter::LAST_WRITE) {
            self.altered.store(true, Ordering::Relaxed);
        }
        self.tell(files, action, matches);
    }

    /// Tells those who watch that something was done to the file.
    pub fn tell(&self, files: &FileTable, action: NotifyAction, matches: CompletionFilter) {
        if files.leases.has_directories() {
            self.entry_changed(files, &self.name());
        }
        self.tell_watchers(files, action, matches);
    }

    /// Reports that its data was changed. Those who watch are told at once; who
    /// has a lease on the directory, at the close: MS-FSA 2.1.5.4 breaks none, and
    /// 2.1.5.5 brings up to date what the directory lists of it.
    pub fn report_written(&self, files: &FileTable) {
        self.set_archive();
        self.times_moved();
        self.written.store(true, Ordering::Release);
        self.tell_watchers(files, NotifyAction::MODIFIED, DATA);
    }

    fn tell_watchers(&self, files: &FileTable, action: NotifyAction, matches: CompletionFilter) {
        if files.watches.is_empty() {
            return;
        }
        let name = self.name();
        if self.base.is_some() {
            let (action, matches) = of_stream(action, matches);
            files.watches.report(self.folder_id(), &name, action, matches);
            return;
        }
        files.watches.report(self.folder_id(), &name, action, matches);
    }

    /// Reports that a name of the file went, or that of its stream did.
    pub fn report_removal(&self, files: &FileTable, Link { folder_id, name }: &Link) {
        let (action, matches) = match (name.stream(), self.is_directory) {
            (Some(_), _) => (NotifyAction::REMOVED_STREAM, CompletionFilter::STREAM_NAME),
            (None, true) => (NotifyAction::REMOVED, CompletionFilter::DIR_NAME),
            (None, false) => (NotifyAction::REMOVED, CompletionFilter::FILE_NAME),
        };
        files.watches.report(*folder_id, name, action, matches);
    }

    /// The entry `name` of a directory has changed through this Open, whose client may hold a
    /// lease on the directory (Lease.ParentLeaseKey).
    pub fn entry_changed(&self, files: &FileTable, name: &Name) {
        if files.leases.has_directories() {
            files.entry_changed(&*self.vfs, name, self.in_directory());
        }
    }

    /// This Open as one that changes what its directory lists.
    pub fn in_directory(&self) -> Actor {
        let lease = {
            let state = self.cell.lock();
            match (state.lease_of(self.id), state.held(self.id)) {
                (Some(own), Granted::Lease { v2: Some(V2 { parent: Some(key), .. }), .. }) => {
                    Some(LeaseOwner { client: own.client, key })
                }
                _ => None,
            }
        };
        Actor { open: self.id, lease }
    }

    /// Reports that the file is no longer called `from`.
    pub fn report_rename(&self, files: &FileTable, from: &Name) {
        self.times_moved();
        if files.leases.has_directories() {
            self.entry_changed(files, from);
            self.entry_changed(files, &self.name());
        }
        if files.watches.is_empty() {
            return;
        }
        let to = self.name();
        if self.base.is_some() {
            let names = CompletionFilter::STREAM_NAME;
            files.watches.report(self.folder_id(), from, NotifyAction::REMOVED_STREAM, names);
            files.watches.report(self.folder_id(), &to, NotifyAction::ADDED_STREAM, names);
            return;
        }
        files.watches.report_rename(self.folder_id(), from, &to, self.names());
        if !self.is_directory {
            // As on Windows, a renamed file (but not a directory) is also reported as MODIFIED to
            // watches that do not ask for names (smbtorture's notify.mask-change and notify.rec).
            let matches = CompletionFilter::ATTRIBUTES | CompletionFilter::CREATION;
            let filters = Filters { matches, unless: self.names() };
            files.watches.report_unless(self.folder_id(), &to, NotifyAction::MODIFIED, filters);
        }
    }
}

/// A change of a stream as watches for streams report it: the data is the stream's, all else
/// the file's.
fn of_stream(action: NotifyAction, matches: CompletionFilter) -> (NotifyAction, CompletionFilter) {
    if action == NotifyAction::ADDED {
        return (NotifyAction::ADDED_STREAM, CompletionFilter::STREAM_NAME);
    }
    if matches.intersects(CompletionFilter::SIZE | CompletionFilter::LAST_WRITE)
        && action == NotifyAction::MODIFIED
    {
        let data = CompletionFilter::STREAM_SIZE | CompletionFilter::STREAM_WRITE;
        return (NotifyAction::MODIFIED_STREAM, data);
    }
    (action, matches)
}
