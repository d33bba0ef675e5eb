//! The changes of files that the brake of a share hears of, and what it tells when it takes hold.

use std::sync::Arc;

use frevo_store::vfs::Kind as FileKind;
use frevo_store::{FileKey, Name, Stat};
use frevo_wire::command::create::CreateAction;

use crate::audit::{Event, Kind};
use crate::objects::kick::{Kick, hex};
use crate::objects::open::{FileOpen, Open};
use crate::objects::server::ServerState;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::brake::{Alarm, BrakeAction, By, Copied, OpenedAs, Seen, Watched};

/// Looks at a file that `tree` opens, and has made or emptied if `action` says so. None without a brake, and for
/// all that it does not look at: folders, streams, and exceptions.
pub(crate) fn watch(
    tree: &TreeConnect,
    name: &Name,
    stat: &Stat,
    action: CreateAction,
) -> Option<Box<Watched>> {
    let braked = tree.braked.as_ref()?;
    if stat.kind != FileKind::File || name.stream().is_some() {
        return None;
    }
    let opened = match action {
        CreateAction::CREATED => OpenedAs::Made,
        CreateAction::OPENED => OpenedAs::Found,
        _ => OpenedAs::Emptied,
    };
    let by = By { braked: Arc::clone(braked), session: session_of(tree) };
    Watched::new(&by, stat.key, name, stat.end_of_file, opened).map(Box::new)
}

fn session_of(tree: &TreeConnect) -> u64 {
    tree.source().map_or(0, |source| source.session)
}

/// Writes the first change of a file's data to the journal.
fn note_change(watched: &Watched, by: &By, file: &FileOpen) {
    if watched.is_unknown() {
        watched.changed(by, &file.name(), file.key());
    }
}

/// The changes that the brake of the share is told of, after they were made. Without a brake they cost one branch.
impl Open {
    /// The file as the brake looks at it, and the client of the tree connect that the Open has by now.
    #[inline]
    fn watched<'a>(&self, file: &'a FileOpen) -> Option<(&'a Watched, By)> {
        file.brake.as_deref().and_then(|watched| Some((watched, self.brake_by()?)))
    }

    fn brake_by(&self) -> Option<By> {
        let tree = self.tree();
        let braked = Arc::clone(tree.braked.as_ref()?);
        Some(By { braked, session: session_of(&tree) })
    }

    /// Data was written.
    #[inline]
    pub(crate) fn brake_wrote(&self, file: &FileOpen, offset: u64, data: &[u8]) {
        if let Some((watched, by)) = self.watched(file) {
            note_change(watched, &by, file);
            self.tell_of(watched.wrote(&by, file.key(), offset, data));
        }
    }

    /// The server has copied `length` bytes of `source` from one place to another.
    pub(crate) fn brake_copied(
        &self,
        file: &FileOpen,
        source: &FileOpen,
        [from, to]: [u64; 2],
        length: u64,
    ) {
        if let Some((watched, by)) = self.watched(file) {
            note_change(watched, &by, file);
            let read = |at: u64, into: &mut [u8]| source.node.read_at(at, into).ok();
            let copied = Copied { source: source.key(), from, to, length, read: &read };
            self.tell_of(watched.copied(&by, file.key(), &copied));
        }
    }

    /// A range from `offset` on was filled with zeros.
    pub(crate) fn brake_zeroed(&self, file: &FileOpen, offset: u64) {
        if let Some((watched, by)) = self.watched(file) {
            note_change(watched, &by, file);
            self.tell_of(watched.zeroed(&by, file.key(), offset));
        }
    }

    /// The size was set.
    pub(crate) fn brake_resized(&self, file: &FileOpen) {
        if let Some((watched, by)) = self.watched(file)
            && let Ok(stat) = file.stat()
        {
            note_change(watched, &by, file);
            watched.resized(&by, file.key(), &file.name(), stat.end_of_file);
        }
    }

    /// The Open is closed.
    #[inline]
    pub(crate) fn brake_closed(&self, file: &FileOpen) {
        if let Some((watched, by)) = self.watched(file) {
            self.tell_of(watched.closed(&by, file.key()));
        }
    }

    /// The file has another name, in place of `replaced`.
    pub(crate) fn brake_renamed(
        &self,
        file: &FileOpen,
        names: [&Name; 2],
        replaced: Option<FileKey>,
    ) {
        if let Some((_, by)) = self.watched(file) {
            self.tell_of(Watched::renamed(&by, file.key(), names, replaced));
        }
    }

    /// The file has one more name, in place of `replaced`.
    pub(crate) fn brake_linked(&self, file: &FileOpen, name: &Name, replaced: Option<FileKey>) {
        if let Some((_, by)) = self.watched(file) {
            self.tell_of(Watched::linked(&by, file.key(), name, replaced));
        }
    }

    /// A name of the file was removed.
    pub(crate) fn brake_removed(&self, file: &FileOpen, name: &Name) {
        if name.stream().is_none()
            && let Some((_, by)) = self.watched(file)
        {
            self.tell_of(Watched::removed(&by, file.key(), name));
        }
    }

    fn tell_of(&self, alarm: Option<Alarm>) {
        if let Some(alarm) = alarm {
            tell(&self.tree(), alarm);
        }
    }
}

/// Tells administrators that the brake has taken hold.
fn tell(tree: &TreeConnect, alarm: Alarm) {
    let Alarm { finding, action } = alarm;
    let (share, session) = (&*tree.share.name, hex(session_of(tree)));
    let peer = tree.source().map(|source| source.peer.to_string()).unwrap_or_default();
    let identity = tree.identity();
    let user = identity.as_ref().map_or("", |identity| &*identity.user);
    let (pattern, count) = (finding.pattern.name(), finding.count);
    let seconds = finding.pattern.within().as_secs();
    let done = match action {
        BrakeAction::Alarm => "it goes on",
        BrakeAction::Slow => "its changes are slowed down",
        BrakeAction::Hold => "its changes are refused until `frevo brake release`",
        BrakeAction::Cut => "its session ends",
    };
    tracing::warn!(target: "frevo::brake", %share, user, %peer, session, pattern, count, seconds,
        "a client changes files as ransomware does; {done}");
    tree.record_always(|| {
        Event::new(Kind::Brake)
            .with("action", action.as_str())
            .with("pattern", pattern)
            .with("count", count as u64)
            .with("seconds", seconds)
    });
}

/// Lets go of the clients that `whom` names, in all shares. Returns their number; `by` says on whose behalf.
pub(crate) fn release(server: &ServerState, whom: &Kick, by: &str) -> usize {
    let mut released = 0;
    for share in server.shares().sorted() {
        let Some(brake) = &share.brake else { continue };
        let is_meant = |seen: &Seen| match whom {
            Kick::User(name) => Kick::names_one(&seen.user, name),
            Kick::Session(id) => seen.gripped.session == *id,
            Kick::Share(name) => Kick::names_one(&share.name, name),
            Kick::Open(_) | Kick::Rpc(_) => false,
        };
        let count = brake.release(is_meant);
        released += count;
        if count > 0 {
            tracing::info!(target: "frevo::brake", share = %share.name, target = %whom, by, count,
                "an administrator released clients from the brake");
            server.audit.emit(|| {
                Event::new(Kind::Brake)
                    .with("action", "released")
                    .with("share", &*share.name)
                    .with("target", whom.to_string())
                    .with("by", by)
                    .with("count", count as u64)
            });
        }
    }
    released
}
