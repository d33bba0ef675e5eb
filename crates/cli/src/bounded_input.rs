//! Files of other programs, read whole or not at all.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::exit::{Exit, Failure};

/// Reads a file, or standard input for `-`, of at most `bytes_max` bytes.
///
/// # Errors
/// If it cannot be read, or is longer: its end could say what must not be lost.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(bytes_max + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let exit = if missing { Exit::NotFound } else { Exit::Failed };
        Failure::new(exit, format!("cannot read {shown}: {error}"))
    })?;
    if bytes.len() as u64 > bytes_max {
        let text =
            format!("{shown} is longer than {bytes_max} bytes; nothing of it was taken over");
        return Err(Failure::new(Exit::Config, text));
    }
    Ok(bytes)
}

/// The text of a file that was read.
///
/// # Errors
/// If it is not UTF-8.
pub(crate) fn text(bytes: Vec<u8>, path: &Path) -> Result<String, Failure> {
    String::from_utf8(bytes)
        .map_err(|_| Failure::new(Exit::Config, format!("{} is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        for (len, is_read) in [(0, true), (7, true), (8, true), (9, false), (900, false)] {
            std::fs::write(&path, vec![b'x'; len]).unwrap();
            match read(&path, 8) {
                Ok(bytes) => assert!(is_read && bytes.len() == len, "{len}"),
                Err(failure) => {
                    assert!(!is_read, "{len}: {failure}");
                    assert_eq!(failure.exit, Exit::Config);
                    assert!(failure.to_string().contains("is longer than 8 bytes"), "{failure}");
                }
            }
        }
        assert_eq!(read(&place.path().join("none"), 8).unwrap_err().exit, Exit::NotFound);
    }
}
