//! Replaces a file on a server by a complete copy.

use std::io::ErrorKind;
use std::time::Duration;

use frevo_client::{
    AccessMask, AceFlags, DaclControl, Error, FileAttributes, Metadata, OpenOptions,
    SecurityDescriptor, Share, Status,
};

use super::super::dos_attributes::CopiedAttributes;
use super::super::lost_answers;

/// The file that a copy replaces.
#[derive(Debug)]
pub(crate) struct Replaced {
    attributes: FileAttributes,
    list: Option<SecurityDescriptor>,
}

impl Replaced {
    /// The file at `path`, if there is one. Called before data is sent: fails for a directory,
    /// and for a file that may not be written.
    pub(crate) async fn look(
        share: &Share,
        path: &str,
        force: bool,
    ) -> frevo_client::Result<Option<Self>> {
        match share.look_before_replacing(path, AccessMask::WRITE_DATA).await {
            Ok((found, list)) => Ok(Some(Self::new(&found, list))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) if error.status() == Some(Status::ACCESS_DENIED) => {
                let Ok(found) = share.metadata(path).await else { return Err(error) };
                if !found.attributes().contains(FileAttributes::READONLY) {
                    // The access list cannot be read, but if the user can open the file for
                    // writing, it may be replaced, without its access list.
                    let options = OpenOptions::new().access(AccessMask::WRITE_DATA);
                    let Ok(file) = options.open(share, path).await else { return Err(error) };
                    let found = file.metadata_at_open();
                    return file.close().await.map(|()| Some(Self::new(&found, None)));
                }
                if !force {
                    let why = "it is read-only; --force replaces it";
                    return Err(super::refused(
                        ErrorKind::PermissionDenied,
                        why,
                        "replace",
                        share.url(path),
                    ));
                }
                let (found, list) = share.look_before_replacing(path, AccessMask::EMPTY).await?;
                Ok(Some(Self::new(&found, list)))
            }
            Err(error) => Err(error),
        }
    }

    fn new(found: &Metadata, list: Option<SecurityDescriptor>) -> Self {
        Self { attributes: found.attributes(), list }
    }

    /// The DOS attributes of the replaced file.
    pub(crate) const fn attributes(&self) -> FileAttributes {
        self.attributes
    }

    /// The access list that it does not have from its directory alone.
    fn own_list(&self) -> Option<SecurityDescriptor> {
        let list = self.list.as_ref()?;
        let entries = &list.dacl.as_ref()?.aces;
        let is_own = entries.iter().any(|entry| !entry.flags().contains(AceFlags::INHERITED))
            || list.control.contains(DaclControl::DACL_PROTECTED);
        let kept = DaclControl::DACL_PROTECTED | DaclControl::DACL_AUTO_INHERITED;
        let mut control = DaclControl::DACL_PRESENT | (list.control & kept);
        if control.contains(DaclControl::DACL_AUTO_INHERITED) {
            control |= DaclControl::DACL_COMPUTED_INHERITANCE_REQUIRED;
        }
        let dacl = list.dacl.clone();
        is_own.then(|| {
            let mut own = SecurityDescriptor::default();
            (own.control, own.dacl) = (control, dacl);
            own
        })
    }

    /// Gives `part` its access list, where that is its own.
    async fn keep_list(&self, share: &Share, part: &str, path: &str) -> frevo_client::Result<()> {
        let Some(list) = self.own_list() else { return Ok(()) };
        let (_, made) = share.look_before_replacing(part, AccessMask::EMPTY).await?;
        if made.is_some_and(|made| made.dacl == list.dacl) {
            return Ok(());
        }
        match share.set_security(part, &list).await {
            // The user may not set access lists, so the new file keeps the one that it has
            // inherited.
            Err(error) if error.status().is_some() => {
                let url = share.url(path);
                crate::console::tell(format_args!(
                    "{url}: cannot keep the access list of the replaced file: {}",
                    error.cause()
                ));
                Ok(())
            }
            done => done,
        }
    }
}

/// The wait before the first repetition of a rename over a file that is open; it doubles each time, to
/// 1.6 s together.
const FIRST_WAIT: Duration = Duration::from_millis(25);
/// Repetitions of such a rename.
const REPETITIONS: u32 = 6;

/// True when another client may have the file open.
pub(super) fn is_in_use(error: &Error) -> bool {
    matches!(error.status(), Some(Status::ACCESS_DENIED | Status::SHARING_VIOLATION))
}

/// As [`put_in_place`], for a copy that took long. Another copy that ends at the same time has the
/// target open for a moment, and this one, which ends later, replaces it.
pub(super) async fn put_in_place_later(
    share: &Share,
    part: &str,
    path: &str,
    old: Option<&Replaced>,
    dress: &CopiedAttributes,
) -> frevo_client::Result<()> {
    let mut waits = (0..REPETITIONS).map(|doubled| FIRST_WAIT * (1 << doubled));
    loop {
        let done = put_in_place(share, part, path, old, dress).await;
        let wait = if done.as_ref().is_err_and(is_in_use) { waits.next() } else { None };
        let Some(wait) = wait else { return done };
        tokio::time::sleep(wait).await;
    }
}

/// Gives a whole part its name. No other command touches the part: when the answer to
/// the rename was lost, a part that is gone was renamed, and one that is there
/// was not.
pub(crate) async fn put_in_place(
    share: &Share,
    part: &str,
    path: &str,
    old: Option<&Replaced>,
    dress: &CopiedAttributes,
) -> frevo_client::Result<()> {
    if let Some(old) = old {
        old.keep_list(share, part, path).await?;
    }
    let is_over_read_only =
        old.is_some_and(|old| old.attributes.contains(FileAttributes::READONLY));
    let done = renamed(share, part, path, is_over_read_only).await;
    done.map_err(super::begun_as(share, path))?;
    if let Some(rest) = dress.after(old.map(Replaced::attributes)) {
        share.set_metadata(path, &rest).await?;
    }
    Ok(())
}

async fn renamed(
    share: &Share,
    part: &str,
    path: &str,
    is_over_read_only: bool,
) -> frevo_client::Result<()> {
    lost_answers::named(share, [part, path], || async move {
        match is_over_read_only {
            true => share.rename_over_read_only(part, path).await,
            false => share.rename(part, path).await,
        }
    })
    .await
}
