//! Targets of symbolic links as they are stored. A link of Windows is a file's or a directory's,
//! whatever its target is: MS-FSA 2.1.5.6.3 lists the attributes of Link.File, and the client that
//! evaluates the target (MS-SMB2 2.2.2.2.1) may find another kind there, or nothing. So a link that a
//! program of the host made to a folder is listed without FILE_ATTRIBUTE_DIRECTORY. A stored target that ends with a separator belongs to a directory's
//! link: programs of the host see the same target, and the kind needs no other place.

use alloc::string::String;

const SEPARATOR: char = '/';
/// The beginning of the text of a link of DFS, in capitals.
const DFS: &str = "MSDFS:";

/// Returns `target` as it is stored for a link of this kind. A target that ends with a separator
/// itself keeps it, and its link becomes a directory's.
pub fn stored(target: &str, directory: bool) -> String {
    let mut stored = String::from(target);
    if directory || target.ends_with(SEPARATOR) {
        stored.push(SEPARATOR);
    }
    stored
}

/// Returns the target that clients see.
pub fn told(mut stored: String) -> String {
    if is_of_directory(stored.as_bytes()) {
        stored.pop();
    }
    stored
}

/// True for the text of a link of DFS as Samba keeps one, which no client may make: a server that reads such
/// links (`samba_links`, or smbd, which takes it in any case) would send others to the places that it names.
pub fn is_of_dfs(stored: &str) -> bool {
    stored.chars().take(DFS.len()).flat_map(char::to_uppercase).eq(DFS.chars())
}

/// True for the stored target of a directory's link.
pub fn is_of_directory(stored: &[u8]) -> bool {
    matches!(stored, [_, .., b'/'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_comes_back_as_it_was() {
        for target in ["a", "a/b", "a/", "a//", "../a"] {
            for directory in [false, true] {
                let link = stored(target, directory);
                assert_eq!(told(link.clone()), target);
                let is_directory = directory || target.ends_with('/');
                assert_eq!(is_of_directory(link.as_bytes()), is_directory, "{target}");
            }
        }
    }

    #[test]
    fn a_link_of_dfs_is_one_in_any_case() {
        for text in ["msdfs:a\\b", "MSDFS:a/b", "MsDfs:", "m\u{17f}dfs:a/b"] {
            assert!(is_of_dfs(text), "{text}");
        }
        for text in ["", "msdfs", "msdfs/a", "a/msdfs:b", " msdfs:a", "msdf\u{df}:"] {
            assert!(!is_of_dfs(text), "{text}");
        }
    }

    #[test]
    fn the_root_of_the_host_stays() {
        assert_eq!(told("/".into()), "/");
        assert!(!is_of_directory(b"/"));
        assert_eq!(told("/a/".into()), "/a");
    }
}
