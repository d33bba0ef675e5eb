//! A share on a real folder, for the tests of handlers that need Opens but no
//! connection.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::shares::folders::testing::{PosixOptions, PosixVfs};
use frevo_net::file_io::Caching;
use frevo_store::file::Admission;
use frevo_store::name::{Name, Rules};
use frevo_store::order::Ordered;
use frevo_store::vfs::{Kind, OpenHow};
use frevo_store::{FileTable, OpenId, Sharing, Vfs};
use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::file_id::FileId;

use crate::objects::open::{FileOpen, Open, OpenTarget, shared_fd};
use crate::objects::times::Times;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::share::{Share, Target};

/// A share of a temporary folder and the table of its open files.
pub(in crate::command) struct Bench {
    folder: tempfile::TempDir,
    vfs: Arc<dyn Vfs>,
    share: Arc<Share>,
    pub(in crate::command) files: FileTable,
    next: AtomicU64,
}

impl Bench {
    pub(in crate::command) fn new() -> Self {
        Self::with(false, PosixOptions::default())
    }

    pub(in crate::command) fn with(read_only: bool, options: PosixOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let vfs: Arc<dyn Vfs> = Arc::new(PosixVfs::open_root(folder.path(), options).unwrap());
        let target = Target::Disk(Arc::clone(&vfs));
        let share = Arc::new(Share { read_only, ..Share::new("data", target) });
        Self { folder, vfs, share, files: FileTable::default(), next: AtomicU64::new(1) }
    }

    /// Where the share is on the host.
    pub(in crate::command) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(in crate::command) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    pub(in crate::command) fn make_folder(&self, name: &str) {
        std::fs::create_dir(self.path().join(name)).unwrap();
    }

    pub(in crate::command) fn exists(&self, name: &str) -> bool {
        self.path().join(name).symlink_metadata().is_ok()
    }

    /// Opens what exists, sharing everything.
    pub(in crate::command) fn open(&self, name: &str, access: AccessMask) -> Open {
        self.open_sharing(name, access, Sharing::ALL).unwrap()
    }

    pub(in crate::command) fn open_sharing(
        &self,
        name: &str,
        access: AccessMask,
        sharing: Sharing,
    ) -> Result<Open, Status> {
        let how = OpenHow {
            read: access.intersects(AccessMask::READ_DATA),
            write: access.intersects(AccessMask::WRITE_DATA),
            ..OpenHow::LOOK
        };
        let name = Name::parse(name, Rules::Windows)?;
        let opened = self.vfs.open(&name, &how).map_err(frevo_store::Fault::status)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let file_id = FileId { persistent: id, volatile: id };
        let (delete_on_close, lease, overwrites) = (false, None, false);
        let id = OpenId(id);
        let folder_id = self.vfs.folder_id();
        let admission = Admission {
            id,
            folder_id,
            access,
            granted: access,
            sharing,
            delete_on_close,
            lease,
            overwrites,
        };
        let cell = self.files.admit(opened.node.key(), &opened.name, admission)?.cell;
        let target = OpenTarget::File(FileOpen {
            fd: shared_fd(&*opened.node),
            node: opened.node,
            caching: Caching::Kept,
            gate: None,
            io: OnceLock::new(),
            vfs: Arc::clone(&self.vfs),
            id,
            cell,
            base: None,
            is_directory: opened.stat.kind == Kind::Directory,
            posix: false,
            apple: false,
            mode: AtomicU64::new(0),
            position: AtomicU64::new(0),
            max_size: self.share.max_file_size,
            times: Times::new(self.share.late_write_times),
            syncs: OnceLock::new(),
            made: AtomicBool::new(false),
            turned: AtomicBool::new(false),
            written: AtomicBool::new(false),
            altered: AtomicBool::new(false),
            brake: None,
            enumeration: Ordered::new(None),
        });
        let tree = TreeConnect::new(1, Arc::clone(&self.share), AccessMask::FILE_ALL);
        Ok(Open::new(file_id, Arc::new(tree), access, 0, target))
    }
}

/// The file of an Open.
pub(in crate::command) fn file(open: &Open) -> &FileOpen {
    open.file().unwrap()
}
