//! The spelling of names that a client sends: of a CREATE, a rename, a link, and in patterns.

use std::sync::Arc;

use frevo_wire::Status;
use frevo_wire::fscc::reserved;

use crate::access::throttle::shortened;
use crate::command::request::Request;
use crate::objects::open::{FileOpen, Open};
use crate::shares::share::Share;

/// The ways of a client to spell names, as its share takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spelling {
    /// A POSIX name: each character but the slash is part of a component.
    pub(super) posix: bool,
    /// Slashes separate components as well (`forward_slashes`).
    slashes: bool,
    /// A component may end in a period or a space (`short_names`).
    endings: bool,
}

impl Spelling {
    /// The spelling of names with Windows' separators only.
    #[cfg(test)]
    pub(super) const PLAIN: Self = Self { posix: false, slashes: false, endings: false };

    /// Returns the spelling of a share's clients, or of a POSIX Open.
    pub(super) fn of(share: &Share, posix: bool) -> Self {
        let has_short_names = || share.vfs().is_some_and(|vfs| vfs.volume().short_names);
        Self {
            posix,
            slashes: !posix && share.forward_slashes,
            endings: !posix && has_short_names(),
        }
    }

    /// Returns the spelling of the names that requests on an Open have.
    pub(super) fn of_open(open: &Open, file: &FileOpen) -> Self {
        Self::of(&open.tree().share, file.posix)
    }

    /// The name as it is meant: slashes become separators, and a period or a space at the end of a
    /// component becomes the character that stands for it, as cifs.ko and macOS send it. The name
    /// of a stream stays.
    pub(super) fn spell(self, text: String) -> String {
        let (path, stream) = text.split_at(text.find(':').unwrap_or(text.len()));
        let has_slashes = self.slashes && path.contains('/');
        let ends = |component: &str| component.ends_with(['.', ' ']) && !is_dots(component);
        let separates = |c: char| c == '\\' || (has_slashes && c == '/');
        let has_endings = self.endings && path.split(separates).any(ends);
        if !has_slashes && !has_endings {
            return text;
        }
        let spelled = |component: &str| match has_endings && ends(component) {
            true => stood_for(component),
            false => component.to_owned(),
        };
        let components: Vec<_> = path.split(separates).map(spelled).collect();
        components.join("\\") + stream
    }
}

/// Tells at the level "debug" of a name that is refused as it is spelled, with the settings that allow more
/// spellings.
pub(super) fn tell_refused(rq: &Request<'_>, name: &str, status: Status) {
    if status != Status::OBJECT_NAME_INVALID && status != Status::OBJECT_PATH_SYNTAX_BAD {
        return;
    }
    if !tracing::enabled!(target: "frevo::access", tracing::Level::DEBUG) {
        return;
    }
    rq.tell(|left_out| {
        let share = rq.tree().ok().map(|tree| Arc::clone(&tree.share));
        tracing::debug!(target: "frevo::access", peer = %rq.connection.peer, left_out,
            share = %share.as_ref().map_or("", |share| &*share.name), name = shortened(name), %status,
            "refused: no file can have a name of this spelling; see forward_slashes, short_names, \
             streams and posix");
    });
}

fn is_dots(component: &str) -> bool {
    matches!(component, "." | "..")
}

/// The component with the character that stands for its last one.
fn stood_for(component: &str) -> String {
    let mut component = component.to_owned();
    let stands_for = component.pop().and_then(reserved::private_at_end);
    component.extend(stands_for);
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_the_share_takes_them() {
        let plain = Spelling::PLAIN;
        let slashes = Spelling { slashes: true, ..plain };
        let endings = Spelling { endings: true, ..plain };
        let both = Spelling { slashes: true, ..endings };
        for (spelling, text, spelled) in [
            (plain, "a/b. \\c.:s.", "a/b. \\c.:s."),
            (slashes, "a/b\\c./", "a\\b\\c.\\"),
            (slashes, "a:s/t", "a:s/t"),
            (endings, "a.\\b \\..\\c/d", "a\u{F029}\\b\u{F028}\\..\\c/d"),
            (endings, "a..\\.:s. ", "a.\u{F029}\\.:s. "),
            (endings, "*.", "*\u{F029}"),
            (both, "a./b /c..:t.", "a\u{F029}\\b\u{F028}\\c.\u{F029}:t."),
            (both, "./../", ".\\..\\"),
            (both, "", ""),
        ] {
            assert_eq!(spelling.spell(text.to_owned()), spelled, "{text}");
        }
    }
}
