//! The state that a message is about: MS-SMB2 3.3.5.2.7.2 (related messages), 3.3.5.2.9
//! (session), 3.3.5.2.10 (channel sequence) and 3.3.5.2.11 (tree connect).

use std::rc::Rc;
use std::sync::Arc;

use frevo_proto::compound::{Chain, FileOutcome, Needs, Outcome as Ended, Verdict};
use frevo_proto::protection::receive_policy;
use frevo_proto::replay::Counted;
use frevo_wire::codec::Reader;
use frevo_wire::file_id::FileId;
use frevo_wire::{Header, HeaderFlags, Route, Status};

use super::Connection;
use crate::base::under_way::Operation;
use crate::command::response::Response;
use crate::command::{self, Ends, FileIdAt, Row};
use crate::objects::channel::Channel;
use crate::objects::open::Open;
use crate::objects::refusal::{Outcome, Refusal};
use crate::objects::session::{Session, State};
use crate::objects::tree_connect::TreeConnect;
use crate::protection::check_session;

/// The state that a message is about.
pub(super) struct Target {
    pub(super) channel: Option<Rc<Channel>>,
    pub(super) tree: Option<Arc<TreeConnect>>,
    pub(super) open: Option<Arc<Open>>,
    pub(super) counted: Option<Counted>,
    /// For session, tree connect and Open; lasts until the handler has ended.
    pub(super) operations: [Option<Operation>; 3],
}

impl Target {
    const fn of(channel: Option<Rc<Channel>>) -> Self {
        Self { channel, tree: None, open: None, counted: None, operations: [None, None, None] }
    }

    /// True for a message to a clustered share.
    pub(super) fn is_limited(&self) -> bool {
        self.tree.as_ref().is_some_and(|tree| tree.share.clustered)
    }
}

impl Connection {
    /// Puts the ids that a related message goes on with in the place of its own,
    /// before anything looks at them: the signature too is that of the session
    /// it runs in, whatever SessionId it bears. Returns the FileId.
    pub(super) fn inherit(
        &self,
        header: &mut Header,
        message: &[u8],
        row: &'static Row,
        verdict: Verdict,
        chain: &mut Chain<FileId>,
    ) -> Result<Option<FileId>, Refusal> {
        match verdict {
            Verdict::Fail(status) => Err(status.into()),
            Verdict::Begin => {
                chain.begin();
                Ok(None)
            }
            Verdict::Continue => {
                let file = match row.file_id {
                    FileIdAt::Needed(_) => true,
                    FileIdAt::Optional(_) => command::ioctl::is_about_an_open(message),
                    FileIdAt::Nowhere | FileIdAt::Made => false,
                };
                let needs = Needs { session: row.session, tree: row.tree, file };
                // Even a refusal of a related request is signed or encrypted with the session of
                // its compound, so the session is set first.
                header.session_id = chain.session_id().unwrap_or(header.session_id);
                let inherited = chain.inherit(needs)?;
                header.session_id = inherited.session_id.unwrap_or(header.session_id);
                if let Some(tree_id) = inherited.tree_id {
                    header.route = Route::Sync { process_id: 0, tree_id };
                }
                Ok(inherited.file)
            }
        }
    }

    /// Finds the state that the row demands: session, tree connect, Open.
    pub(super) fn look_up(
        &self,
        message: &[u8],
        header: &Header,
        row: &'static Row,
        sealed: bool,
        inherited: Option<FileId>,
    ) -> Result<Target, Refusal> {
        let mut found = Target::of(self.members.channel(header.session_id));
        if !row.session {
            return Ok(found);
        }
        #[cfg(feature = "test-hooks")]
        if self.info.settings.test_hooks
            && matches!(row.file_id, FileIdAt::Optional(_))
            && header.session_id == 0
        {
            // This IOCTL needs no session. Its handler refuses all codes except the test hooks.
            return Ok(found);
        }
        let channel = found.channel.as_ref().ok_or(Status::USER_SESSION_DELETED)?;
        let session = Arc::clone(&channel.session);
        check_session(&self.info, &session, row.when_expired, sealed)?;
        session.use_now();
        if row.ends != Ends::Session {
            let operation = session.under_way.begin().ok_or(Status::USER_SESSION_DELETED)?;
            found.operations[0] = Some(operation);
        }
        if row.tree {
            let sealed = sealed || self.info.accepts_transport_security();
            let looked = look_up_tree(&session, header, row, sealed, &mut found)
                .and_then(|()| look_up_open(&session, message, row, inherited, &mut found));
            if let Some(tree) = found.tree.as_ref().filter(|tree| !tree.takes_requests()) {
                // The connection ends without a response, so that the client reconnects and finds
                // the new owner of the share. An error status would look like the new owner's
                // answer.
                return Err(Refusal::Disconnect(tree.end_of_requests()));
            }
            looked?;
            self.count(header, &mut found)?;
        }
        Ok(found)
    }

    /// Counts a request to an Open that is carried out, MS-SMB2 3.3.5.2.10. One that is not, because its share is
    /// paused, must not be counted: it has no end, and the client's repetition would wait for that.
    fn count(&self, header: &Header, found: &mut Target) -> Result<(), Status> {
        let Some(open) = &found.open else { return Ok(()) };
        if self.info.is_smb3() {
            let replay = header.flags.contains(HeaderFlags::REPLAY_OPERATION);
            let mut sequence = open.channel_sequence.lock();
            let counted = sequence.start(header.command, header.channel_sequence(), replay);
            found.counted = if planted!(StaleRequest) { counted.ok() } else { Some(counted?) };
        }
        if let Some(survival) = open.survival() {
            // MS-SMB2 3.3.5.10 and later: a client that sends this FileId has received the response
            // to its CREATE, so it cannot replay the CREATE any more.
            survival.set_replay_eligible(false);
        }
        Ok(())
    }

    /// Waits a moment for the CREATE by which the client takes up a persistent Open that it has named already,
    /// after a move of its share. Returns true when that was carried out.
    ///
    /// MS-SMB2 3.3.5.11: an Open that is not in Session.OpenTable is FILE_CLOSED. Linux's client repeats a FLUSH
    /// as soon as it has the share again, before that CREATE, and gives the handle up if it is refused.
    pub(super) async fn is_taken_up(&self, id: FileId, session: u64) -> bool {
        let Some(channel) = self.members.channel(session) else { return false };
        let session = &channel.session;
        let Some(identity) = session.identity() else { return false };
        let durables = &self.info.server.durables;
        let has_come = durables.taken_up(id.persistent, &identity.user, session.client_guid).await;
        if has_come {
            // The CREATE puts the Open into its session after the table.
            tokio::task::yield_now().await;
        }
        has_come
    }
}

/// Finds the tree connect that a message names.
fn look_up_tree(
    session: &Session,
    header: &Header,
    row: &'static Row,
    sealed: bool,
    found: &mut Target,
) -> Result<(), Refusal> {
    let ended = |status| ended_with(session, status);
    let tree = session.tree(header.tree_id().unwrap_or(0)).map_err(ended)?;
    let tree = &*found.tree.insert(tree);
    if let Some(status) = receive_policy::refusal_by_tree(sealed, tree.share.encrypt) {
        return Err(status.into());
    }
    if row.ends != Ends::TreeConnect {
        let operation = tree.under_way.begin();
        let operation = operation.ok_or_else(|| ended(Status::NETWORK_NAME_DELETED))?;
        found.operations[1] = Some(operation);
    }
    Ok(())
}

/// Finds the Open that a message names, in the tree connect that was found.
fn look_up_open(
    session: &Session,
    message: &[u8],
    row: &'static Row,
    inherited: Option<FileId>,
    found: &mut Target,
) -> Result<(), Refusal> {
    let ended = |status| ended_with(session, status);
    let tree_id = found.tree.as_ref().map_or(0, |tree| tree.id);
    let Some(id) = file_id(message, row, inherited)? else { return Ok(()) };
    let open = match session.open(id) {
        // Some control codes need no Open, so a missing Open is no error here. The IOCTL
        // handler decides.
        Err(_) if matches!(row.file_id, FileIdAt::Optional(_)) => return Ok(()),
        open => open.map_err(ended)?,
    };
    if open.tree().id != tree_id {
        return Err(Status::FILE_CLOSED.into());
    }
    if row.ends != Ends::Open {
        let operation = open.under_way.begin();
        let operation = operation.ok_or_else(|| ended(Status::FILE_CLOSED))?;
        found.operations[2] = Some(operation);
    }
    found.open = Some(open);
    Ok(())
}

/// The status for what is missing in a session. A session that ends meanwhile, on another channel, is
/// reported as such: no key is left that could sign the response.
fn ended_with(session: &Session, status: Status) -> Status {
    match session.state() {
        State::Closed => Status::USER_SESSION_DELETED,
        _ => status,
    }
}

/// The FileId that a message is about: what it inherits, else what it says.
fn file_id(
    message: &[u8],
    row: &'static Row,
    inherited: Option<FileId>,
) -> Result<Option<FileId>, Refusal> {
    let id = named(message, row, inherited)?;
    let optional = matches!(row.file_id, FileIdAt::Optional(_));
    Ok(id.filter(|id| !optional || *id != FileId::ALL_ONES))
}

/// Like [`file_id`], also for an id that is no Open's.
pub(super) fn named(
    message: &[u8],
    row: &'static Row,
    inherited: Option<FileId>,
) -> Result<Option<FileId>, Refusal> {
    let (FileIdAt::Needed(at) | FileIdAt::Optional(at)) = row.file_id else { return Ok(None) };
    if inherited.is_some() {
        return Ok(inherited);
    }
    Ok(Some(FileId::read(&mut Reader::new(message.get(at..).unwrap_or(&[])))?))
}

/// The state that a message leaves to a related message after it.
pub(super) fn ended(
    header: &Header,
    row: &'static Row,
    outcome: &Outcome,
    out: &Response,
    file: FileOutcome<FileId>,
) -> Ended<FileId> {
    let said = match outcome {
        Ok(status) => *status,
        Err(refusal) => refusal.status().unwrap_or(Status::INTERNAL_ERROR),
    };
    let (file, status) = match row.file_id {
        FileIdAt::Made => (out.file_id().map_or(FileOutcome::NotMade, FileOutcome::Some), said),
        // As on Windows, a related CLOSE still runs after a failed QUERY_INFO. A related request
        // inherits the failure only if there is no FileId; with an invalid FileId it fails by
        // itself.
        _ if matches!(file, FileOutcome::Some(_)) => (file, Status::SUCCESS),
        _ => (file, said),
    };
    let tree_id = if row.tree { header.tree_id() } else { None };
    // If the session does not exist, related requests must not inherit its id.
    let has_session = row.session && said != Status::USER_SESSION_DELETED;
    Ended {
        session_id: has_session.then_some(header.session_id),
        tree_id: out.tree_id().or(tree_id),
        file,
        status,
    }
}
