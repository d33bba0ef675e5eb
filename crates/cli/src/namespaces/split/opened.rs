//! The files in a folder that clients have open, by whichever share.

use std::path::{Path, PathBuf};

use frevo_config::{Config, ShareSection, USER};
use frevo_wire::fscc::fold_name;

use crate::admin::running_server::OpenFile;
use crate::exit::{Exit, Failure};
use crate::plural::counted;

/// Files that a refusal names.
const NAMED: usize = 5;

/// The path on the host of an open file.
fn host_path(share: &ShareSection, file: &OpenFile) -> PathBuf {
    let folder = share.path.get_ref().to_string_lossy().replace(USER, &file.user);
    let folder = std::fs::canonicalize(&folder).unwrap_or_else(|_| PathBuf::from(folder));
    let path = file.path.split('\\').filter(|name| !name.is_empty());
    let path = path.fold(folder, |path, name| path.join(name));
    // With links the path that the client has used may lead elsewhere.
    if share.follow_symlinks { std::fs::canonicalize(&path).unwrap_or(path) } else { path }
}

/// True for a path that is `folder` or in it, without regard to case.
fn is_in(path: &Path, folder: &Path) -> bool {
    let folded = |path: &Path| -> Vec<String> {
        path.components().map(|part| fold_name(&part.as_os_str().to_string_lossy())).collect()
    };
    folded(path).starts_with(&folded(folder))
}

/// Those of `opens` that are `folder` or in it.
pub(super) fn in_folder(config: &Config, opens: Vec<OpenFile>, folder: &Path) -> Vec<OpenFile> {
    let is_inside = |file: &OpenFile| {
        let is_it = |share: &&ShareSection| {
            fold_name(share.name.get_ref().as_str()) == fold_name(&file.share)
        };
        let share = config.shares.iter().find(is_it);
        share.is_some_and(|share| is_in(&host_path(share, file), folder))
    };
    opens.into_iter().filter(is_inside).collect()
}

/// The refusal of a folder with open files.
pub(super) fn refusal(files: &[OpenFile]) -> Failure {
    let named = files.iter().take(NAMED);
    let shown = |file: &OpenFile| format!(r"{}\{} by {}", file.share, file.path, file.user);
    let mut list = named.map(shown).collect::<Vec<_>>().join(", ");
    if let Some(more) = files.len().checked_sub(NAMED).filter(|more| *more > 0) {
        list.push_str(&format!(" and {more} more"));
    }
    let them = if files.len() == 1 { "it is" } else { "they are" };
    let text = format!(
        "clients have {} open in the folder: {list}; the folder stays as it is: try again when {them} closed, \
         or let --even-if-open close what is open, by which clients lose what they have not written",
        counted(files.len(), "file")
    );
    Failure::new(Exit::Failed, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(share: &str, user: &str, path: &str) -> OpenFile {
        OpenFile::new("0x1", share, user, path)
    }

    #[test]
    fn files_are_found_by_all_shares_that_reach_them() {
        let config = "[[share]]\nname = \"files\"\npath = \"/srv/files\"\n\
            [[share]]\nname = \"all\"\npath = \"/srv\"\n\
            [[share]]\nname = \"homes\"\npath = \"/srv/files/teams/{user}\"\n\
            [[share]]\nname = \"other\"\npath = \"/other\"\n";
        let config = Config::parse(config).unwrap();
        let opens = vec![
            file("FILES", "ann", r"Teams\RED\a"),
            file("files", "ann", r"teams\redder\a"),
            file("all", "bob", r"files\teams\red"),
            file("homes", "red", "b:stream"),
            file("homes", "blue", "b"),
            file("other", "ann", r"teams\red\a"),
            file("files", "ann", ""),
        ];
        let found = in_folder(&config, opens, Path::new("/srv/files/teams/red"));
        let paths: Vec<&str> = found.iter().map(|file| &*file.path).collect();
        assert_eq!(paths, [r"Teams\RED\a", r"files\teams\red", "b:stream"]);
    }

    #[test]
    fn a_refusal_names_some_files() {
        let one = refusal(&[file("files", "ann", r"red\a")]).message;
        assert!(one.contains(r"1 file open in the folder: files\red\a by ann;"), "{one}");
        let many: Vec<OpenFile> = (0..7).map(|at| file("s", "u", &at.to_string())).collect();
        let many = refusal(&many).message;
        assert!(many.contains("7 files open") && many.contains("and 2 more"), "{many}");
    }
}
