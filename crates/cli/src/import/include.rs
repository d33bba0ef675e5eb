//! The files that `include` of an smb.conf names.

use std::path::Path;

use super::smb_conf::Included;
use crate::bounded_input;
use crate::exit::Failure;

/// The reason why the output of testparm needs no `include`.
const TAKEN_OVER: &str = "testparm has taken its lines over; if the smb.conf has a % in that name, the \
                          lines for single clients are lost";

/// The source of an smb.conf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It is the smb.conf of this host.
    ThisHost,
    /// It is of another host: the files of that host are not here, whatever files of the same names
    /// say.
    OtherHost,
    /// It is the output of `testparm -s`, which has the lines of all files in it.
    Testparm,
}

/// Reads the files that an smb.conf includes.
pub(super) struct Includes {
    /// The most bytes of all files together, less those that were read.
    bytes_left: u64,
    origin: Origin,
    /// The first file that is there and cannot be taken over.
    pub(super) failure: Option<Failure>,
}

impl Includes {
    /// The files of an smb.conf, of at most so many bytes.
    pub(super) fn of(origin: Origin, bytes_max: u64) -> Self {
        Self { bytes_left: bytes_max, origin, failure: None }
    }

    /// Reads a file. smbd goes on without one that is not there; whether it is not there, this host
    /// can tell if it has its folder.
    pub(super) fn read(&mut self, path: &str) -> Included {
        match self.origin {
            Origin::ThisHost if !path.contains('%') && !path.is_empty() => {}
            Origin::Testparm => return Included::Nothing(String::from(TAKEN_OVER)),
            Origin::ThisHost | Origin::OtherHost => return Included::Unknown,
        }
        let file = Path::new(path);
        if file.is_file() {
            return self.text(file);
        }
        let has_folder = file.is_absolute() && file.parent().is_some_and(Path::is_dir);
        if !has_folder || file.exists() {
            return Included::Unknown;
        }
        Included::Nothing(String::from("there is no such file here, so Samba goes on without it"))
    }

    fn text(&mut self, file: &Path) -> Included {
        let read = bounded_input::read(file, self.bytes_left)
            .and_then(|bytes| bounded_input::text(bytes, file));
        match read {
            Ok(text) => {
                self.bytes_left = self.bytes_left.saturating_sub(text.len() as u64);
                Included::Text(text)
            }
            Err(failure) => {
                self.failure.get_or_insert(failure);
                Included::Unknown
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_samba_does() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("more.conf"), "comment = x\n").unwrap();
        std::fs::write(at("long.conf"), "x".repeat(101)).unwrap();
        let mut plain = Includes::of(Origin::ThisHost, 100);
        assert_eq!(plain.read(&at("more.conf")), Included::Text("comment = x\n".into()));
        assert!(matches!(plain.read(&at("none.conf")), Included::Nothing(_)));
        for unknown in [&*at("%U.conf"), &at("no/such/folder.conf"), "", "relative.conf", "/"] {
            assert_eq!(plain.read(unknown), Included::Unknown, "{unknown}");
        }
        assert!(plain.failure.is_none());
        assert_eq!(plain.read(&at("long.conf")), Included::Unknown);
        assert!(plain.failure.is_some(), "a file that is too long is not left out");
        // The limit applies to all included files together, so only 7 of the 20 reads are done.
        let reads = (0..20).filter(|_| plain.read(&at("more.conf")) != Included::Unknown).count();
        assert_eq!(reads, 7);

        // The smb.conf comes from another host, so its includes name files of that host, and files
        // of this host are not read.
        let mut other = Includes::of(Origin::OtherHost, 100);
        for read in ["more.conf", "none.conf", "long.conf"] {
            assert_eq!(other.read(&at(read)), Included::Unknown, "{read}");
        }
        assert!(other.failure.is_none());
    }
}
