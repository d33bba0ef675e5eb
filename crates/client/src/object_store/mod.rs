//! A share as an `object_store::ObjectStore`.
//!
//! An object is a file, and a `/` in its location separates directories. `tests/object_store.rs`
//! runs the conformance tests of the crate `object_store` against a server.

mod listing;
mod locations;
mod multipart;
mod reading;
mod staged;

use std::fmt;
use std::ops::Range;

use ::object_store::path::Path;
use ::object_store::{
    CopyMode, CopyOptions, Error as StoreError, GetOptions, GetResult, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions, RenameTargetMode, Result,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};

use crate::error::Cause;
use crate::share::Share;
use locations::{failure, share_path};
use staged::{Staged, Target};

/// Objects that a stream of locations deletes at the same time.
const DELETES_AT_ONCE: usize = 8;

/// A share as an [`ObjectStore`]. Needs the feature `object_store`.
///
/// ```
/// # #[path = "../../tests/world/mod.rs"]
/// # mod world;
/// use frevo_client::{Share, SmbStore};
/// use object_store::path::Path;
/// use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode};
///
/// async fn example(share: Share) -> object_store::Result<()> {
///     let store = SmbStore::new(share);
///     let location = Path::from("reports/2024.csv");
///     store.put_opts(&location, "a,b\n".into(), PutMode::Create.into()).await?;
///     let again = store.put_opts(&location, "c,d\n".into(), PutMode::Create.into()).await;
///     assert!(matches!(again, Err(Error::AlreadyExists { .. })));
///     assert_eq!(store.get(&location).await?.bytes().await?, "a,b\n");
///     Ok(())
/// }
/// # fn main() {
/// #     world::in_world(async |world| example(world.share().await).await.unwrap());
/// # }
/// ```
///
/// `object_store::prefix::PrefixStore` makes a directory of the share a store.
///
/// # Atomic changes
///
/// Data is written to a file with a name of its own (`frevo-put~` and 32 digits), which then
/// takes the object's name: readers find the old object or the new one. Listings leave such
/// files out. One stays behind when a program is killed while it writes; it can be removed.
/// While another program has the object open, the new one takes its place with the POSIX
/// semantics of MS-FSCC 2.4.43. A server without them refuses that for as long as the object
/// is open; the store tries again for 5 seconds.
///
/// `PutMode::Create`, `copy_if_not_exists` and `rename_if_not_exists` are decided by the server.
/// `PutMode::Update` holds a lock file beside the object (`frevo-lock~` and 16 digits), so that of
/// several updates of one version only one succeeds. Other changes do not wait for that lock: one
/// that happens between the comparison and the rename is lost.
///
/// An ETag is made of the file's number, the time of its last write and its length. Each put
/// sets that time by this machine's clock, so that it differs between two versions.
///
/// # Limits
///
/// - Names that differ in case only are one object, unless the share has the POSIX extensions.
/// - The characters `" * : < > ? \ |`, and a space or a period at the end of a name, are sent as
///   characters of the range U+F020 to U+F029, as cifs.ko (`mapposix`) and macOS do.
/// - A directory that contains no object is a common prefix in `list_with_delimiter`. Deleting an
///   object leaves its directory.
/// - Listings leave symbolic links and links of a DFS namespace out.
/// - Attributes (content type and others) and versions are refused; tags are ignored.
/// - `rename` of an object is one request; `copy` is carried out by the server if it can.
#[derive(Debug, Clone)]
pub struct SmbStore {
    share: Share,
}

impl SmbStore {
    /// Returns the store of all files of `share`.
    pub const fn new(share: Share) -> Self {
        Self { share }
    }

    /// Returns the share that has the objects.
    pub const fn share(&self) -> &Share {
        &self.share
    }

    fn not_implemented(&self, operation: &str) -> StoreError {
        StoreError::NotImplemented { operation: operation.into(), implementer: self.to_string() }
    }

    async fn copy_to(&self, from: &Path, to: &Path, target: Target) -> Result<()> {
        let source = share_path(&self.share, from)?;
        let staged = Staged::new(&self.share, to)?;
        staged.write(&PutPayload::default()).await?;
        let copied = self.share.copy(&source, staged.part()).await;
        copied.map_err(|error| failure(error, from))?;
        staged.date().await?;
        staged.publish(&target).await.map(drop)
    }
}

impl From<Share> for SmbStore {
    fn from(share: Share) -> Self {
        Self::new(share)
    }
}

impl fmt::Display for SmbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SmbStore({})", self.share.url(""))
    }
}

#[async_trait]
impl ObjectStore for SmbStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        if !opts.attributes.is_empty() {
            return Err(self.not_implemented("put with attributes"));
        }
        let target = match opts.mode {
            PutMode::Overwrite => Target::Any,
            PutMode::Create => Target::Absent,
            PutMode::Update(version) if version.version.is_some() => {
                return Err(self.not_implemented("put with a version"));
            }
            PutMode::Update(version) => Target::Version(version.e_tag.unwrap_or_default()),
        };
        let staged = Staged::new(&self.share, location)?;
        // The condition is checked before the data is sent, so that a write that cannot succeed
        // sends no data.
        staged.compare(&target).await?;
        staged.write(&payload).await?;
        staged.publish(&target).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !opts.attributes.is_empty() {
            return Err(self.not_implemented("put with attributes"));
        }
        Ok(Box::new(multipart::Upload::begin(&self.share, location).await?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.version.is_some() {
            return Err(self.not_implemented("get with a version"));
        }
        reading::get(&self.share, location, &options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        reading::ranges(&self.share, location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let share = self.share.clone();
        let delete = move |location: Result<Path>| {
            let share = share.clone();
            async move {
                let location = location?;
                delete(&share, &location).await?;
                Ok(location)
            }
        };
        locations.map(delete).buffered(DELETES_AT_ONCE).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        listing::list(&self.share, prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        listing::list_one(&self.share, prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let target = match options.mode {
            CopyMode::Overwrite => Target::Any,
            CopyMode::Create => Target::Absent,
        };
        self.copy_to(from, to, target).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let target = match options.target_mode {
            RenameTargetMode::Overwrite => Target::Any,
            RenameTargetMode::Create => Target::Absent,
        };
        staged::rename(&self.share, from, to, &target).await
    }
}

/// Deletes an object. A lost answer is no error when the object is gone afterwards.
async fn delete(share: &Share, location: &Path) -> Result<()> {
    let path = share_path(share, location)?;
    let mut was_lost = false;
    loop {
        let done = match share.unlink_file(&path).await {
            Err(error) if staged::lacks_posix_semantics(&error) => share.remove_file(&path).await,
            done => done,
        };
        match done {
            Err(error) if matches!(error.cause(), Cause::Unknown) => was_lost = true,
            Err(error) if was_lost && error.is_not_found() => return Ok(()),
            done => return done.map_err(|error| failure(error, location)),
        }
    }
}
