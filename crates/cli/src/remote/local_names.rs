//! The paths of this machine for names of the wire.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use frevo_mount::names::{Spelling, from_wire};

use super::long_path::reach;

/// The local path of `name` below `root`, or `root` itself for an empty name. A local name may have
/// a stand-in itself: it is meant, where there is no name with the character that it stands for.
pub(crate) fn local_in(root: &Path, name: &str) -> PathBuf {
    if name.is_empty() {
        return root.to_owned();
    }
    if !name.contains(|one| ('\u{f001}'..='\u{f029}').contains(&one)) {
        return root.join(name);
    }
    name.split('/').fold(root.to_owned(), |above, part| {
        let (plain, exact) = (above.join(local_name(part)), above.join(part));
        let is_exact =
            is_absent(&plain) && reach(&exact).is_ok_and(|exact| exact.symlink_metadata().is_ok());
        if is_exact { exact } else { plain }
    })
}

/// A path of the wire in the spelling of this machine: the stand-ins for `: * ?` and the like
/// become these characters.
pub(crate) fn local_name(path: &str) -> PathBuf {
    path.split('/').map(|name| from_wire(name, Spelling::Mapped)).collect()
}

/// True when `path` certainly does not exist.
pub(crate) fn is_absent(path: &Path) -> bool {
    let found = reach(path).and_then(std::fs::symlink_metadata);
    found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names_with_stand_ins_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(local_in(root, "a\u{f022}b/c"), root.join("a:b/c"), "new");
        std::fs::create_dir(root.join("a\u{f022}b")).unwrap();
        assert_eq!(local_in(root, "a\u{f022}b/c\u{f025}"), root.join("a\u{f022}b/c?"));
        std::fs::create_dir(root.join("a:b")).unwrap();
        assert_eq!(local_in(root, "a\u{f022}b/c"), root.join("a:b/c"), "the character itself");
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        assert_eq!(local_name("a\u{f022}b/c\u{f029}"), PathBuf::from("a:b/c."));
        for name in ["\u{f029}", ".\u{f029}", "x/.\u{f029}/y"] {
            let path = local_name(name);
            let normal = |part| matches!(part, std::path::Component::Normal(_));
            assert!(path.components().all(normal), "{path:?}");
        }
    }
}
