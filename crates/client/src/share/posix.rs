//! The SMB 3.1.1 POSIX extensions: modes, owners, exact names.
//!
//! They are not Microsoft's: Samba, the Linux kernel and ksmbd share them. NEGOTIATE offers
//! them (context 0x0100). A CREATE with their context makes a POSIX Open. Level 100 of
//! QUERY_INFO and QUERY_DIRECTORY returns the fields of `stat`. Owners and modes are set as
//! SIDs that stand for numbers.

use std::sync::atomic::Ordering;

use frevo_wire::codec::Writer;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, Sid};

use crate::error::{Cause, Error, Result};
use crate::metadata::posix::Special;
use crate::session::Live;
use crate::share::attributes::ReparsePoint;
use crate::share::compound::{close_call, look_at};
use crate::share::{Replay, Share};

/// Space for level 100, bytes: the fixed part and two SIDs.
pub(crate) const STAT_MAX: u32 = 512;

impl Share {
    /// Asks the server for the POSIX extensions, if [`Options::posix`](crate::Options::posix)
    /// offered them, and returns true if the share has them. From then on case counts in
    /// names, and only separators are reserved. A share of a DFS namespace never has them:
    /// its links may lead to servers without.
    ///
    /// # Errors
    /// Fails if the share's root cannot be opened.
    pub async fn use_posix(&self) -> Result<bool> {
        const OPERATION: &str = "look up";
        if self.is_dfs() {
            return Ok(false);
        }
        self.inner.posix.store(true, Ordering::Release);
        let mut asking = Asking { share: self, is_posix: false };
        let ask = look_at(AccessMask::EMPTY);
        let calls = || vec![close_call()];
        let answers = self.chain(OPERATION, "", Replay::Idempotent, &ask, &[], calls).await;
        let found = answers.and_then(|answers| answers.opened(OPERATION, &self.url("")));
        asking.is_posix = matches!(&found, Ok(opened) if opened.posix.is_some());
        found.map(|_| asking.is_posix)
    }

    /// Returns true after [`Self::use_posix`] has found the POSIX extensions.
    pub fn is_posix(&self) -> bool {
        self.inner.posix.load(Ordering::Acquire)
    }

    /// Returns true if both the share and the session have the extensions.
    pub(crate) fn is_posix_in(&self, live: &Live) -> bool {
        live.posix && self.is_posix()
    }

    /// Creates a FIFO, a socket or a device at `path`, whole or not at all.
    ///
    /// # Errors
    /// Fails if `path` exists, or the server has no such files.
    #[doc(hidden)]
    pub async fn make_special(&self, path: &str, special: Special, mode: u32) -> Result<()> {
        const OPERATION: &str = "make the special file";
        let Some(special) = special.nfs() else {
            let cause = Cause::Usage("a symbolic link is made with symlink_file or symlink_dir");
            return Err(Error::new(cause, OPERATION, self.url(path)));
        };
        let mut data = Vec::new();
        if special.encode(&mut Writer::new(&mut data)).is_none() {
            let cause = Cause::Usage("the special file is not valid");
            return Err(Error::new(cause, OPERATION, self.url(path)));
        }
        let point = ReparsePoint { kind: CreateOptions::NON_DIRECTORY_FILE, mode, data };
        self.make_reparse_point(path, point, OPERATION).await.map(drop)
    }
}

/// A question for the extensions. Dropped without an answer it counts as no.
struct Asking<'a> {
    share: &'a Share,
    is_posix: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.share.inner.posix.store(self.is_posix, Ordering::Release);
    }
}

/// Numbers as SIDs, as the NFS server of Windows writes them. The mode is in an entry that
/// allows nothing.
pub(crate) fn descriptor(
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
) -> SecurityDescriptor {
    let nfs = |kind: u32, number: u32| Sid::new(5, &[88, kind, number]);
    let dacl = mode.and_then(|mode| {
        let ace = Ace::deny(AceFlags::EMPTY, AccessMask::EMPTY, nfs(3, mode & 0o7777)?);
        Some(Acl::new(vec![ace]))
    });
    let mut control = SdControl::SELF_RELATIVE;
    if dacl.is_some() {
        control |= SdControl::DACL_PRESENT;
    }
    SecurityDescriptor {
        control,
        rm_control: 0,
        owner: uid.and_then(|uid| nfs(1, uid)),
        group: gid.and_then(|gid| nfs(2, gid)),
        sacl: None,
        dacl,
    }
}
