//! The changes of files that the brake of a share hears of, and what it tells when it takes hold.

use frevo_store::vfs::Kind as FileKind;
use frevo_store::{FileKey, Name, Stat};
use frevo_wire::command::create::CreateAction;

use crate::audit::{Event, Kind};
use crate::objects::kick::{Kick, hex};
use crate::objects::open::{FileOpen, Open};
use crate::objects::server::ServerState;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::brake::{Alarm, BrakeAction, OpenedAs, Seen, Watched};

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
    let (session, end) = (session_of(tree), stat.end_of_file);
    Watched::new(braked, session, stat.key, name, end, opened).map(Box::new)
}

fn session_of(tree: &TreeConnect) -> u64 {
    tree.source().map_or(0, |source| source.session)
}

/// Writes the first change of a file's data to the journal.
fn note_change(watched: &Watched, file: &FileOpen) {
    if watched.is_unknown() {
        watched.changed(&file.name(), file.key());
    }
}

/// The changes that the brake of the share is told of, after they were made. Without a brake they cost one branch.
impl Open {
    /// Data was written.
    #[inline]
    pub(crate) fn brake_wrote(&self, file: &FileOpen, offset: u64, data: &[u8]) {
        if let Some(watched) = &file.brake {
            note_change(watched, file);
            self.tell_of(watched.wrote(file.key(), offset, data));
        }
    }

    /// The server has copied data of `source`.
    pub(crate) fn brake_copied(&self, file: &FileOpen, source: &FileOpen) {
        if let Some(watched) = &file.brake {
            note_change(watched, file);
            self.tell_of(watched.copied(file.key(), source.key()));
        }
    }

    /// The size was set.
    pub(crate) fn brake_resized(&self, file: &FileOpen) {
        if let Some(watched) = &file.brake
            && let Ok(stat) = file.stat()
        {
            note_change(watched, file);
            watched.resized(file.key(), &file.name(), stat.end_of_file);
        }
    }

    /// The file has another name, or one more, in place of `replaced`.
    pub(crate) fn brake_renamed(
        &self,
        file: &FileOpen,
        names: [&Name; 2],
        replaced: Option<FileKey>,
    ) {
        if let Some(watched) = &file.brake {
            self.tell_of(watched.renamed(file.key(), names, replaced));
        }
    }

    /// A name of the file was removed.
    pub(crate) fn brake_removed(&self, file: &FileOpen, name: &Name) {
        if let Some(watched) = &file.brake
            && name.stream().is_none()
        {
            self.tell_of(watched.removed(file.key(), name));
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
