//! How much of a share backups may take: `time_machine_max_size`.
//!
//! macOS asks how large the volume is and thins out its backups when that is
//! full. What they take is counted as Samba's vfs_fruit counts it: a backup is a
//! disk image, a folder `*.sparsebundle` whose `Info.plist` says how large a band
//! is and whose folder `bands` has a file for each; that is a look at one folder,
//! where adding up sizes would be one at each file.

use std::sync::Arc;

use frevo_store::name::Rules;
use frevo_store::vfs::{KindWanted, OpenHow, Space};
use frevo_store::{Name, Node, Vfs};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::base::limits::{
    TIME_MACHINE_COUNTED, TIME_MACHINE_IMAGES, TIME_MACHINE_NAMES, TIME_MACHINE_PLIST_BYTES,
};

/// Endings of the names of disk images that consist of bands.
const IMAGES: [&str; 2] = [".sparsebundle", ".backupbundle"];

/// How large a share is for backups, and what they take of it.
#[derive(Debug)]
pub(crate) struct Limit {
    /// Bytes.
    bytes: u64,
    counted: Mutex<Option<(Instant, u64)>>,
    /// The permit to count: a count may take long, and one is enough for all.
    counting: Arc<Semaphore>,
}

impl Limit {
    /// A share of that many bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes, counted: Mutex::new(None), counting: Arc::new(Semaphore::new(1)) }
    }

    /// The size of the backups, if it was counted less than [`TIME_MACHINE_COUNTED`] ago.
    fn known(&self) -> Option<u64> {
        let counted = self.counted.lock();
        counted.filter(|(when, _)| when.elapsed() < TIME_MACHINE_COUNTED).map(|(_, bytes)| bytes)
    }

    /// Counts anew, off the core, unless that was done just now. A count that was
    /// begun is finished, whether or not somebody still waits for it.
    pub(crate) async fn count(self: &Arc<Self>, vfs: &Arc<dyn Vfs>) {
        if self.known().is_some() {
            return;
        }
        let Ok(turn) = Arc::clone(&self.counting).acquire_owned().await else { return };
        // Another task may have finished the count while this one waited.
        if self.known().is_some() {
            return;
        }
        let (limit, vfs) = (Arc::clone(self), Arc::clone(vfs));
        let counted = frevo_net::file_io::run_blocking(move || {
            let bytes = taken(&*vfs);
            *limit.counted.lock() = Some((Instant::now(), bytes));
            drop(turn);
        });
        if let Err(error) = counted.await {
            tracing::warn!(target: "frevo::server", %error, "cannot count the size of the backups");
        }
    }

    /// The space of the file system, as much of it as there is for backups.
    pub(crate) fn of(&self, space: Space) -> Space {
        let taken = self.counted.lock().map_or(0, |(_, bytes)| bytes);
        let units = |bytes: u64| bytes / u64::from(space.unit.max(1));
        let left = units(self.bytes.saturating_sub(taken));
        Space {
            total: space.total.min(units(self.bytes)),
            available: space.available.min(left),
            free: space.free.min(left),
            ..space
        }
    }
}

/// Bytes that the disk images at the top of the share take. A client can make any number of folders
/// that look like images: so many names and images are looked at in all, and no more.
fn taken(vfs: &dyn Vfs) -> u64 {
    let is_image = |name: &str| {
        let name = name.to_ascii_lowercase();
        IMAGES.iter().any(|end| name.ends_with(end))
    };
    let (mut images, mut left) = (Vec::new(), TIME_MACHINE_NAMES);
    each_name(vfs, "", &mut left, |name| {
        if is_image(name) && images.len() < TIME_MACHINE_IMAGES {
            images.push(name.to_owned());
        }
    });
    let bytes = |image: &String| image_bytes(vfs, image, &mut left).unwrap_or(0);
    images.iter().map(bytes).fold(0, u64::saturating_add)
}

/// Size of a band times bands; none for what is no such image.
fn image_bytes(vfs: &dyn Vfs, image: &str, left: &mut usize) -> Option<u64> {
    let plist = open(vfs, &format!("{image}\\Info.plist"), KindWanted::NotDirectory)?;
    let mut text = vec![0; TIME_MACHINE_PLIST_BYTES];
    let length = plist.read_at(0, &mut text).ok()?;
    let band = band_bytes(&String::from_utf8_lossy(text.get(..length)?))?;
    let mut bands = 0_u64;
    each_name(vfs, &format!("{image}\\bands"), left, |_| bands += 1);
    Some(band.saturating_mul(bands))
}

/// The number that follows the key `band-size`.
fn band_bytes(plist: &str) -> Option<u64> {
    let (_, rest) = plist.split_once("<key>band-size</key>")?;
    let rest = rest.trim_start().strip_prefix("<integer>")?;
    rest.split_once('<')?.0.trim().parse().ok()
}

fn open(vfs: &dyn Vfs, name: &str, kind: KindWanted) -> Option<Arc<dyn Node>> {
    let name = Name::parse(name, Rules::Windows).ok()?;
    let how = OpenHow { kind, read: true, ..OpenHow::LOOK };
    vfs.open(&name, &how).ok().map(|opened| opened.node)
}

/// Tells of the names in a folder, as many as are `left` to be looked at.
fn each_name(vfs: &dyn Vfs, folder: &str, left: &mut usize, mut tell: impl FnMut(&str)) {
    let Some(node) = open(vfs, folder, KindWanted::Directory) else { return };
    let Ok(mut listing) = node.directory() else { return };
    while *left > 0 {
        match listing.next_name() {
            Ok(Some(name)) => tell(name),
            _ => return,
        }
        *left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use crate::shares::folders::testing::{PosixOptions, PosixVfs};
    use frevo_store::vfs::{Opened, VfsResult, Volume};
    use frevo_store::{FileKey, Stat};

    use super::*;

    #[test]
    fn a_plist_says_how_large_a_band_is() {
        let plist = "<dict>\n<key>size</key><integer>9</integer>\n<key>band-size</key>\n\t<integer> 8388608 </integer></dict>";
        assert_eq!(band_bytes(plist), Some(8 << 20));
        for broken in ["", "<key>band-size</key>", "<key>band-size</key><integer>-1</integer>"] {
            assert_eq!(band_bytes(broken), None, "{broken}");
        }
    }

    #[tokio::test]
    async fn bands_are_counted_and_the_rest_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let vfs: Arc<dyn Vfs> =
            Arc::new(PosixVfs::open_root(folder.path(), PosixOptions::default()).unwrap());
        let image = folder.path().join("Mac.SparseBundle");
        std::fs::create_dir_all(image.join("bands")).unwrap();
        std::fs::create_dir_all(folder.path().join("other/bands")).unwrap();
        std::fs::create_dir(folder.path().join("empty.sparsebundle")).unwrap();
        let plist = "<key>band-size</key><integer>8192</integer>";
        std::fs::write(image.join("Info.plist"), plist).unwrap();
        for band in ["0", "1", "a"] {
            std::fs::write(image.join("bands").join(band), "x").unwrap();
        }
        let space = Space {
            unit: 4096,
            total: 1 << 20,
            available: 1000,
            free: 1000,
            files: 0,
            free_files: 0,
        };
        let limit = Arc::new(Limit::new(32 * 1024));
        limit.count(&vfs).await;
        let told = limit.of(space);
        assert_eq!((told.total, told.available, told.free), (8, 2, 2));
        // The limit never reports more free space than the file system has.
        assert_eq!(limit.of(Space { available: 1, ..space }).available, 1);
        // If more is used than the limit allows, no space is available.
        let small = Arc::new(Limit::new(8192));
        small.count(&vfs).await;
        assert_eq!((small.of(space).total, small.of(space).available), (2, 0));
    }

    /// A share with so many images of so many bands of one byte.
    fn counted(images: usize, bands: usize) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        for image in 0..images {
            let image = folder.path().join(format!("{image}.sparsebundle"));
            std::fs::create_dir_all(image.join("bands")).unwrap();
            let plist = "<key>band-size</key><integer>1</integer>";
            std::fs::write(image.join("Info.plist"), plist).unwrap();
            for band in 0..bands {
                std::fs::write(image.join("bands").join(band.to_string()), "").unwrap();
            }
        }
        taken(&PosixVfs::open_root(folder.path(), PosixOptions::default()).unwrap())
    }

    /// Others wait for a count: folders that look like images must not make it long.
    #[test]
    fn so_many_images_and_bands_are_counted() {
        for images in [TIME_MACHINE_IMAGES - 1, TIME_MACHINE_IMAGES, TIME_MACHINE_IMAGES + 1] {
            assert_eq!(counted(images, 1), images.min(TIME_MACHINE_IMAGES) as u64);
        }
        // The image itself counts as one of the TIME_MACHINE_NAMES names, so one band (a part of
        // the image) less is counted.
        let most = TIME_MACHINE_NAMES - 1;
        for bands in [most - 1, most, most + 1] {
            assert_eq!(counted(1, bands), bands.min(most) as u64);
        }
        // The limit applies to the bands of all images together.
        assert_eq!(counted(3, TIME_MACHINE_NAMES / 2), (TIME_MACHINE_NAMES - 3) as u64);
    }

    /// Tells how often anybody began to list the share.
    #[derive(Debug)]
    struct Watched(PosixVfs, AtomicUsize);

    impl Vfs for Watched {
        fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
            if name.is_root() {
                self.1.fetch_add(1, Ordering::Relaxed);
                // The pause gives all tasks time to ask for the count while it still runs.
                std::thread::sleep(Duration::from_millis(100));
            }
            self.0.open(name, how)
        }

        fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
            self.0.remove(name, key)
        }

        fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
            self.0.rename(from, key, to, replace)
        }

        fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
            self.0.link(node, to, replace)
        }

        fn stat(&self, name: &Name) -> VfsResult<Stat> {
            self.0.stat(name)
        }

        fn space(&self) -> VfsResult<Space> {
            self.0.space()
        }

        fn volume(&self) -> Arc<Volume> {
            self.0.volume()
        }
    }

    /// A client that asks for the space again and again uses one thread, not all of them.
    #[tokio::test]
    async fn one_counts_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let posix = PosixVfs::open_root(folder.path(), PosixOptions::default()).unwrap();
        let watched = Arc::new(Watched(posix, AtomicUsize::new(0)));
        let vfs: Arc<dyn Vfs> = Arc::clone(&watched) as _;
        let limit = Arc::new(Limit::new(8192));
        let all = (0..8).map(|_| limit.count(&vfs));
        futures_util::future::join_all(all).await;
        assert_eq!(watched.1.load(Ordering::Relaxed), 1);
    }
}
