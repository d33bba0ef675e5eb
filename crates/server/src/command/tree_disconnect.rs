//! TREE_DISCONNECT: MS-SMB2 3.3.5.8.

use frevo_wire::Status;
use frevo_wire::command::tree_disconnect;

use crate::audit::{Event, Kind};
use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::refusal::Outcome;

/// Ends a tree connect and closes what was opened through it.
/// Waits for its operations on all channels: after the answer nothing is read or written
/// through it any more.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    tree_disconnect::Request::parse(rq.message)?;
    let (session, tree) = (rq.session()?, rq.tree()?);
    session.remove_tree(tree, |open| rq.server().close_open(open))?;
    tree.under_way.end();
    tree.under_way.give_up();
    tree.under_way.drained().await;
    rq.tell(|left_out| {
        tracing::info!(target: "frevo::tree", peer = %rq.connection.peer,
            share = %tree.share.name, left_out, "tree disconnected");
    });
    rq.server().audit.emit(|| {
        Event::new(Kind::Disconnect)
            .from(rq.source())
            .by(tree.identity())
            .with("share", &*tree.share.name)
    });
    tree_disconnect::Response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}
