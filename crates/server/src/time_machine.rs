//! How much of a share backups may take: `time_machine_max_size`.
//!
//! macOS asks how large the volume is and thins out its backups when that is
//! full. What they take is counted as Samba's vfs_fruit counts it: a backup is a
//! disk image, a folder `*.sparsebundle` whose `Info.plist` says how large a band
//! is and whose folder `bands` has a file for each; that is a look at one folder,
//! where adding up sizes would be one at each file.

use std::sync::Arc;

use frevo_store::name::Rules;
use frevo_store::vfs::{Existence, KindWanted, OpenHow, Space};
use frevo_store::{Name, Node, Vfs};
use frevo_wire::dtyp::FileAttributes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::{TIME_MACHINE_BANDS, TIME_MACHINE_COUNTED, TIME_MACHINE_PLIST_BYTES};

/// What ends the names of disk images made of bands.
const IMAGES: [&str; 2] = [".sparsebundle", ".backupbundle"];

/// How large a share is for backups, and what they take of it.
#[derive(Debug)]
pub struct Limit {
    /// Bytes.
    bytes: u64,
    counted: Mutex<Option<(Instant, u64)>>,
}

impl Limit {
    /// A share of that many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, counted: Mutex::new(None) }
    }

    /// What backups take, as counted less than [`TIME_MACHINE_COUNTED`] ago.
    fn known(&self) -> Option<u64> {
        let counted = self.counted.lock();
        counted.filter(|(when, _)| when.elapsed() < TIME_MACHINE_COUNTED).map(|(_, bytes)| bytes)
    }

    /// Counts anew, off the core, unless that was done just now.
    pub async fn count(&self, vfs: &Arc<dyn Vfs>) {
        if self.known().is_some() {
            return;
        }
        let vfs = Arc::clone(vfs);
        if let Ok(bytes) = frevo_net::file_io::run_blocking(move || taken(&*vfs)).await {
            *self.counted.lock() = Some((Instant::now(), bytes));
        }
    }

    /// The space of the file system, as much of it as there is for backups.
    pub fn of(&self, space: Space) -> Space {
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

/// Bytes that the disk images at the top of the share take.
fn taken(vfs: &dyn Vfs) -> u64 {
    let is_image = |name: &str| {
        let name = name.to_ascii_lowercase();
        IMAGES.iter().any(|end| name.ends_with(end))
    };
    let mut images = Vec::new();
    each_name(vfs, "", |name| {
        if is_image(name) {
            images.push(name.to_owned());
        }
    });
    images.iter().map(|image| image_bytes(vfs, image).unwrap_or(0)).fold(0, u64::saturating_add)
}

/// Size of a band times bands; none for what is no such image.
fn image_bytes(vfs: &dyn Vfs, image: &str) -> Option<u64> {
    let plist = open(vfs, &format!("{image}\\Info.plist"), KindWanted::NotDirectory)?;
    let mut text = vec![0; TIME_MACHINE_PLIST_BYTES];
    let length = plist.read_at(0, &mut text).ok()?;
    let band = band_bytes(&String::from_utf8_lossy(text.get(..length)?))?;
    let mut bands = 0_u64;
    each_name(vfs, &format!("{image}\\bands"), |_| bands += 1);
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
    let how = OpenHow {
        existence: Existence::MustExist,
        kind,
        read: true,
        write: false,
        open_link: false,
        attributes: FileAttributes::EMPTY,
        mode: None,
        case_sensitive: false,
    };
    vfs.open(&name, &how).ok().map(|opened| opened.node)
}

/// Tells of the names in a folder, as many as there may be.
fn each_name(vfs: &dyn Vfs, folder: &str, mut tell: impl FnMut(&str)) {
    let Some(node) = open(vfs, folder, KindWanted::Directory) else { return };
    let Ok(mut listing) = node.directory() else { return };
    for _ in 0..TIME_MACHINE_BANDS {
        match listing.next_name() {
            Ok(Some(name)) => tell(name),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_posix::{PosixOptions, PosixVfs};

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
        let limit = Limit::new(32 * 1024);
        limit.count(&vfs).await;
        let told = limit.of(space);
        assert_eq!((told.total, told.available, told.free), (8, 2, 2));
        // What the file system has not is not there either.
        assert_eq!(limit.of(Space { available: 1, ..space }).available, 1);
        // More than the limit is full, not less than nothing.
        let small = Limit::new(8192);
        small.count(&vfs).await;
        assert_eq!((small.of(space).total, small.of(space).available), (2, 0));
    }
}
