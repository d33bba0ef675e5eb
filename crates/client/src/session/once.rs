//! Compounds that are carried out once, although their answer is lost with one of several channels.

use std::sync::Arc;

use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::operation::{OperationId, Outcome, Progress};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::file_id::FileId;
use tokio::time::sleep;

use crate::connection::{Call, Message};
use crate::limits::{ATTEMPTS, BACK_OFF_FIRST, OPERATION_LOOKS, OPERATION_PAUSE_MAX};
use crate::session::bound::Bound;
use crate::session::{Failure, Live};
use crate::share::fsctl;

impl Live {
    /// Sends a compound as one numbered operation; `make` puts the number into its requests. After
    /// a lost answer the server is asked for the outcome.
    ///
    /// With `once`, the compound is sent again only if it was not carried out. If the server says
    /// that all of its requests succeeded, the returned list is empty.
    ///
    /// Without `once`, the compound is sent again as soon as the first one has ended or cannot
    /// begin any more: it may be carried out twice, and the caller gets its answers.
    ///
    /// # Errors
    /// [`Failure::Gone`] if the answer was lost and its outcome cannot be learned.
    pub(crate) async fn numbered_chain<'p>(
        self: &Arc<Self>,
        bound: Bound,
        once: bool,
        make: impl Fn(OperationId) -> Vec<Call<'p>>,
    ) -> Result<Vec<Message>, Failure> {
        let mut taken = self.operations.take().await.ok_or(Failure::Unsent)?;
        for _ in 0..ATTEMPTS {
            taken.id.sequence += 1;
            let channel = self.channel().ok_or(Failure::Unsent)?;
            match self.chain(&channel, make(taken.id), bound.seal).await {
                Err(Failure::Gone) if planted!(RenamedTwice) => continue,
                Err(Failure::Gone) if once && planted!(LossBelieved) => return Ok(Vec::new()),
                Err(Failure::Gone) => {}
                other => return other,
            }
            let outcome = self.outcome_of(bound, taken.id).await?;
            match (outcome.progress, outcome.status) {
                // CANCELLED means that the server gave the request up, because its connection ended
                // while the request waited for other clients. So the request is sent again.
                (Progress::NOT_BEGUN, _) | (Progress::DONE, Status::CANCELLED) => {}
                (Progress::DONE, _) if !once => {}
                (Progress::DONE, Status::SUCCESS) => return Ok(Vec::new()),
                (Progress::DONE, status) => return Err(Failure::Final(status.into())),
                _ => return Err(Failure::Gone),
            }
        }
        Err(Failure::Unsent)
    }

    /// Asks for the outcome of an operation whose answer was lost, and repeats the question while the
    /// operation runs. An operation that has not begun when it is asked for never begins.
    ///
    /// # Errors
    /// [`Failure::Gone`] if the last channel was lost, or the server does not number operations.
    pub(crate) async fn outcome_of(
        self: &Arc<Self>,
        bound: Bound,
        id: OperationId,
    ) -> Result<Outcome, Failure> {
        let mut pause = BACK_OFF_FIRST;
        for _ in 0..OPERATION_LOOKS {
            self.prune();
            let channel = self.channel().ok_or(Failure::Gone)?;
            let mut input = Vec::new();
            id.encode(&mut Writer::new(&mut input));
            let code = CtlCode::FREVO_QUERY_OPERATION;
            let call = fsctl(code, FileId::ALL_ONES, &input, OUTCOME_MAX);
            let call = Call { tree_id: bound.tree_id, ..call };
            let message = match self.call(&channel, call, bound.seal).await {
                Err(Failure::Gone | Failure::Unsent) => continue,
                answer => answer?,
            };
            if message.status() != Status::SUCCESS {
                // The server refuses the query because it does not number operations. So the
                // outcome of the lost request stays unknown.
                return Err(Failure::Gone);
            }
            let outcome = ioctl::Response::parse(message.bytes())
                .and_then(|response| Outcome::parse(response.output));
            let outcome = outcome.map_err(|_| Failure::Gone)?;
            if outcome.progress != Progress::RUNNING {
                return Ok(outcome);
            }
            sleep(pause).await;
            pause = (pause * 2).min(OPERATION_PAUSE_MAX);
        }
        Err(Failure::Gone)
    }
}

/// Space for the answer, bytes.
const OUTCOME_MAX: u32 = 64;
const _: () = assert!(Outcome::LEN <= OUTCOME_MAX as usize);
