//! Long work on messages, which any thread may do.

use super::Algorithm;

/// The work on one or more messages: everything is decided, and what remains takes long. A role
/// runs it where it is made, or hands it to another thread and takes the result back.
pub trait Work {
    /// The result, which the thread that made the work goes on with.
    type Done;

    /// Bytes of the messages.
    fn bytes(&self) -> usize;

    /// The algorithm that takes the time; `None` if nothing takes long.
    fn algorithm(&self) -> Option<Algorithm>;

    /// Does the work.
    fn run(self) -> Self::Done;
}
