//! Operations on names: MS-CIFS 2.2.4.1, 2.2.4.2, 2.2.4.7, 2.2.4.8.

use alloc::vec::Vec;

use crate::charset::{Charset, Strings, Unmappable};
use crate::header::Command;
use crate::message::{Request, words};

/// BufferFormat of a string, MS-CIFS 2.2.2.5.
const ASCII: &[u8] = &[4];

/// SearchAttributes: hidden and system files, too.
const HIDDEN_AND_SYSTEM: u16 = 0x06;
/// SearchAttributes: hidden and system files and directories, too.
const ALL: u16 = 0x16;

fn names(
    charset: Charset,
    command: Command,
    attributes: Option<u16>,
    paths: &[&str],
) -> Result<Request<'static>, Unmappable> {
    let mut bytes = Strings::new(charset);
    for path in paths {
        bytes.raw(ASCII).text(path)?;
    }
    let words = attributes.map_or_else(Vec::new, |attributes| {
        words(|w| {
            w.u16(attributes);
        })
    });
    Ok(Request::new(command, words, bytes.bytes))
}

/// Returns a request that makes a directory.
///
/// # Errors
/// If the code page lacks a character of the path.
pub fn create_directory(charset: Charset, path: &str) -> Result<Request<'static>, Unmappable> {
    names(charset, Command::CREATE_DIRECTORY, None, &[path])
}

/// Returns a request that removes an empty directory.
///
/// # Errors
/// If the code page lacks a character of the path.
pub fn delete_directory(charset: Charset, path: &str) -> Result<Request<'static>, Unmappable> {
    names(charset, Command::DELETE_DIRECTORY, None, &[path])
}

/// Returns a request that removes a file. The path must have no wildcards, which would remove several.
///
/// # Errors
/// If the code page lacks a character of the path.
pub fn delete(charset: Charset, path: &str) -> Result<Request<'static>, Unmappable> {
    names(charset, Command::DELETE, Some(HIDDEN_AND_SYSTEM), &[path])
}

/// Returns a request that renames a file or directory to a name that does not exist yet.
///
/// # Errors
/// If the code page lacks a character of the paths.
pub fn rename(charset: Charset, from: &str, to: &str) -> Result<Request<'static>, Unmappable> {
    names(charset, Command::RENAME, Some(ALL), &[from, to])
}

/// Returns true for a path that a server would take for a pattern.
pub fn has_wildcards(path: &str) -> bool {
    path.contains(['*', '?', '"', '<', '>'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_a_rename_are_aligned() {
        let request = rename(Charset::Unicode, "\\a", "\\bc").unwrap();
        assert_eq!(request.words, [0x16, 0]);
        // The first format is at an odd offset from the header, so that the string behind it needs no
        // padding; the second string does.
        assert_eq!(request.bytes, *b"\x04\\\0a\0\0\0\x04\0\\\0b\0c\0\0\0");
        let request = delete(Charset::Oem(crate::CodePage::Cp850), "\\ä").unwrap();
        assert_eq!(request.bytes, [4, b'\\', 0x84, 0]);
    }

    #[test]
    fn patterns_are_known() {
        assert!(has_wildcards("\\a*") && has_wildcards("\\a?b") && !has_wildcards("\\a b"));
    }
}
