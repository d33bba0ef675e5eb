//! Searches in an index: each file is looked at with the rights of the user who asks before it is told.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_index::{BadQuery, Cursor, Facts, Query, Search, Slot};
use frevo_store::security::Token;
use frevo_store::vfs::{Kind, Opened, Stat, Vfs};
use frevo_store::{HostChange, Name};
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::eq_ignore_case;
use frevo_wire::fscc::notify::NotifyAction;
use serde::{Serialize, Serializer};

use super::{IndexState, ShareIndex};
use crate::shares::protection::{self, LOOK};
use crate::shares::visibility;

/// Time of a search in an index before it goes on in another request.
const SEARCH_SLICE: Duration = Duration::from_millis(8);

/// Longest wait for changes of the index, before a search goes on in another request.
const PATIENCE: Duration = Duration::from_millis(4);

/// Entries that a search compares while changes of the index wait: about 1 ms.
const STEP: usize = 16_384;

/// Files that a search looks at before it looks at the time.
const LOOKS: usize = 32;

/// A file that a search has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundFile {
    /// The number that the server tells for the file.
    pub id: u64,
    /// The path from the share's root, with `\` between names.
    pub path: String,
    /// File or folder.
    #[serde(serialize_with = "kind_name")]
    pub kind: frevo_index::Kind,
    /// Bytes.
    pub size: u64,
    /// The last change of the data, seconds since 1970-01-01 00:00 UTC.
    pub modified: i64,
    /// The creation, in the same unit.
    pub created: i64,
}

/// A part of the files that a search finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPage {
    /// Files that the user may know of. There may be none although there are more to come.
    pub found: Vec<FoundFile>,
    /// The place where the search goes on. None: these were the last ones.
    pub after: Option<Cursor>,
    /// False while files may be missing: the first walk goes on, or the index is full.
    pub complete: bool,
}

/// The reason why a search finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchError {
    /// The query has too many conditions.
    Query(BadQuery),
    /// There is no such share, or it has no index, or this server does not serve it.
    NoIndex,
    /// There is no such folder, or the user may not know of it.
    NoFolder,
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query(bad) => bad.fmt(f),
            Self::NoIndex => f.write_str("there is no share of this name with an index"),
            Self::NoFolder => f.write_str("there is no such folder"),
        }
    }
}

impl std::error::Error for SearchError {}

/// The user who searches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Viewer<'a> {
    /// The share's files as this user has them.
    pub(crate) files: &'a Arc<dyn Vfs>,
    /// The token of access checks. None for an administrator of the host, to whom nothing is hidden.
    pub(crate) token: Option<&'a Token>,
    /// True on a share that hides what a user cannot read.
    pub(crate) hides_unreadable: bool,
    /// The folder of deleted files, in which nothing is found.
    pub(crate) bin: Option<&'a str>,
}

/// The index of a share as one user may search it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Searcher<'a> {
    pub(crate) index: &'a ShareIndex,
    pub(crate) viewer: Viewer<'a>,
}

/// Folders whose listing was allowed or refused to the user a moment ago.
type Allowed = HashMap<String, bool>;

/// A file that meets the query.
struct Candidate {
    path: String,
}

impl Searcher<'_> {
    /// Carries out a part of a search below the folder `scope`, of about 10 ms at most, and tells at most `most`
    /// files. It reads the index and looks at files, as a listing does, and may be called on a core wherever a listing
    /// may.
    ///
    /// # Errors
    /// For a query that is too complex, or a folder that the user may not know of.
    pub(crate) fn search(
        &self,
        scope: &Name,
        query: &Query,
        after: Option<Cursor>,
        most: usize,
    ) -> Result<FoundPage, SearchError> {
        let search = Search::new(query).map_err(SearchError::Query)?;
        let until = Instant::now() + SEARCH_SLICE;
        let mut allowed = Allowed::new();
        let scope = self.scope(scope, &mut allowed)?;
        let mut after = after.unwrap_or(Cursor::START);
        let mut found = Vec::new();
        let page = |found, after| FoundPage { found, after, complete: self.index.is_complete() };
        loop {
            let room = most.saturating_sub(found.len()).min(LOOKS);
            if room == 0 {
                return Ok(page(found, Some(after)));
            }
            let mut candidates = Vec::new();
            let next = self.step(&search, &scope, after, room, &mut candidates);
            found.extend(candidates.into_iter().filter_map(|one| self.told(one, &mut allowed)));
            let Some(next) = next else { return Ok(page(found, None)) };
            after = next;
            if Instant::now() >= until {
                return Ok(page(found, Some(after)));
            }
        }
    }

    /// Returns how far the index is.
    #[allow(dead_code, reason = "clients search by Spotlight")]
    pub(crate) fn state(&self) -> IndexState {
        self.index.state()
    }

    /// The stored path of the folder that is searched.
    fn scope(&self, scope: &Name, allowed: &mut Allowed) -> Result<String, SearchError> {
        if scope.is_root() {
            return Ok(String::new());
        }
        let opened = self.viewer.files.open(scope, &LOOK).map_err(|_| SearchError::NoFolder)?;
        let is_known = opened.stat.kind == Kind::Directory
            && !self.is_in_bin(&opened.name)
            && self.lists_way(&opened.name, allowed)
            && self.sees(&opened);
        if is_known { Ok(opened.name.path().to_owned()) } else { Err(SearchError::NoFolder) }
    }

    /// Compares some entries of the index. Returns where the search goes on; None at its end.
    fn step(
        &self,
        search: &Search,
        scope: &str,
        after: Cursor,
        room: usize,
        candidates: &mut Vec<Candidate>,
    ) -> Option<Cursor> {
        // While the index grows its tables nobody waits for it on a core.
        let Some(index) = self.index.index.try_read_for(PATIENCE) else { return Some(after) };
        let scope: Slot = index.find(scope)?;
        index.search(search, scope, after, STEP, |slot| {
            candidates.extend(index.path(slot).map(|path| Candidate { path }));
            candidates.len() < room
        })
    }

    /// The file, if it is still there and the user may know of it.
    fn told(&self, candidate: Candidate, allowed: &mut Allowed) -> Option<FoundFile> {
        let Candidate { path } = candidate;
        let name = Name::from_stored(path.clone());
        if self.is_in_bin(&name) || !self.lists_way(&name, allowed) {
            return None;
        }
        let opened = match self.viewer.files.open(&name, &LOOK) {
            Ok(opened) if opened.name.path() == path => opened,
            // The file has gone, or has another name now. A file that the user may not reach is looked at in vain.
            _ => {
                self.index.look_again(&path);
                return None;
            }
        };
        if !self.sees(&opened) {
            return None;
        }
        let Facts { id, kind, size, modified, created } = facts_of(&opened.stat);
        Some(FoundFile { id, path, kind, size, modified, created })
    }

    /// True for a name in the folder of deleted files, and for that folder.
    fn is_in_bin(&self, name: &Name) -> bool {
        let top = name.components().next();
        self.viewer.bin.is_some_and(|bin| top.is_some_and(|top| eq_ignore_case(top, bin)))
    }

    /// True if the user may list every folder on the way to a file, the share's root among them.
    fn lists_way(&self, name: &Name, allowed: &mut Allowed) -> bool {
        if self.viewer.token.is_none() {
            return true;
        }
        let mut folder = name.clone();
        while !folder.is_root() {
            folder = folder.parent();
            let is_allowed = match allowed.get(folder.path()) {
                Some(is_allowed) => *is_allowed,
                None => {
                    let is_allowed = self.lists(&folder);
                    allowed.insert(folder.path().to_owned(), is_allowed);
                    is_allowed
                }
            };
            if !is_allowed {
                return false;
            }
        }
        true
    }

    /// True if the user may list a folder, and sees it.
    fn lists(&self, folder: &Name) -> bool {
        let Some(token) = self.viewer.token else { return true };
        let Ok(opened) = self.viewer.files.open(folder, &LOOK) else { return false };
        let rights = protection::rights(&*opened.node, opened.stat.kind, token);
        let may_list = rights.is_ok_and(|rights| rights.contains(AccessMask::READ_DATA));
        // The root is not listed anywhere, so it is not hidden.
        may_list
            && opened.node.host_access().read
            && opened.stat.kind == Kind::Directory
            && (folder.is_root() || self.sees(&opened))
    }

    /// True if the listing of its folder shows a file to the user.
    fn sees(&self, opened: &Opened) -> bool {
        let Some(token) = self.viewer.token.filter(|_| self.viewer.hides_unreadable) else {
            return true;
        };
        protection::rights(&*opened.node, opened.stat.kind, token).is_ok_and(visibility::shows)
    }
}

impl ShareIndex {
    /// Has the thread look at a path again.
    fn look_again(&self, path: &str) {
        let (action, matches) = (NotifyAction::MODIFIED, CompletionFilter::FILE_NAME);
        self.inbox.hear(&HostChange::Change { action, name: path, matches });
    }
}

fn kind_name<S: Serializer>(kind: &frevo_index::Kind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match kind {
        frevo_index::Kind::Folder => "folder",
        frevo_index::Kind::File => "file",
    })
}

/// The facts of a file that the index has.
pub(super) fn facts_of(stat: &Stat) -> Facts {
    let is_folder = stat.kind == Kind::Directory;
    Facts {
        id: stat.id,
        kind: if is_folder { frevo_index::Kind::Folder } else { frevo_index::Kind::File },
        size: stat.end_of_file,
        modified: stat.written.to_unix().0,
        created: stat.created.to_unix().0,
    }
}
