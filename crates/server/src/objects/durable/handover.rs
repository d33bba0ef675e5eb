//! Durable and resilient Opens over a planned restart: a server that stops leaves those that wait
//! for their clients to the run that follows.
//!
//! MS-SMB2 3.3.1.10 keeps durable Opens in memory, and a server that crashes loses them. A server
//! that stops can store them for the next run, so that their clients need not notice. The next run
//! reads the records once: if it crashes, the Opens are lost.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use frevo_store::StateStore;
use frevo_store::state::{Loaded, OpenRecord, RecordId, StateFault};
use frevo_wire::dtyp::FileTime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::owning::{load, unanswered};
use super::record::{Recorded, record_of, restore_all};
use crate::objects::open::Open;
use crate::objects::server::ServerState;

/// 100 ns in a millisecond.
const TICKS_PER_MS: u64 = 10_000;

/// The bytes before a record: the time until which the client may come (8, FILETIME), and 1 for a
/// resilient Open, 0 for a durable one.
const HEAD: usize = 9;

/// The share of these records in their store: they are of all shares, and a server reads them at once.
const NO_SHARE: &str = "";

/// Encodes an Open for the next run, as [`HEAD`] and its record. None for an Open that ends with
/// this run: a persistent one is on record already; one that deletes its file, or that a record
/// does not describe in full, is closed.
fn left(open: &Open, now: FileTime) -> Option<Vec<u8>> {
    let survival = open.survival().filter(|s| !s.is_persistent())?;
    if open.tree().share.clustered {
        // Another server may own the share when this one starts again.
        return None;
    }
    let resiliency = survival.resiliency_timeout();
    if resiliency.is_none() && !survival.is_durable() {
        return None;
    }
    let file = open.file().ok()?;
    if file.is_directory || file.posix || file.apple || file.base.is_some() {
        return None;
    }
    let mut record = record_of(open, survival)?;
    if let Some(time) = resiliency {
        record.timeout_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    }
    if record.delete_on_close || record.delete_pending {
        return None;
    }
    let until = now.0.saturating_add(u64::from(record.timeout_ms).saturating_mul(TICKS_PER_MS));
    let kind = [u8::from(resiliency.is_some())];
    Some([&until.to_le_bytes()[..], &kind, &record.to_bytes()].concat())
}

/// Leaves the durable Opens that wait for their clients to the next run, if this server has a
/// store for that. They stay open: the caller closes them.
pub async fn leave(server: &ServerState) {
    let Some((store, owner)) = server.durables.handover() else { return };
    let now = server.ambient.now();
    let mut stored = Vec::new();
    for open in server.durables.waiting() {
        let Some(bytes) = left(&open, now) else { continue };
        let (done, stable) = oneshot::channel();
        let done = Box::new(move |result| _ = done.send(result));
        store.put(owner, RecordId(open.file_id.persistent), bytes, done);
        stored.push(stable);
    }
    let (mut count, mut lost) = (0_usize, 0_usize);
    for stable in stored {
        match stable.await {
            Ok(Ok(())) => count += 1,
            Ok(Err(_)) | Err(_) => lost += 1,
        }
    }
    if lost > 0 {
        tracing::warn!(target: "frevo::durable", lost,
            "durable handles could not be stored for the next start; their clients open the files anew");
    }
    if count > 0 {
        tracing::info!(target: "frevo::durable", count, "durable handles are left to the next start");
    }
}

/// Takes up the Opens that the run before left in `store`, and leaves this run's there when it
/// stops. To be called before anybody is served.
///
/// # Errors
/// When the store cannot be read or emptied. An Open whose time is over, or that cannot be made
/// again, costs that Open alone.
pub fn take_up(server: &Arc<ServerState>, store: Arc<dyn StateStore>) -> Result<usize, StateFault> {
    let Loaded { ownership, records } = load(&*store, NO_SHARE).recv().map_err(unanswered)??;
    let (done, emptied) = mpsc::channel();
    for (id, _) in &records {
        let done = done.clone();
        // The send fails if this function returned early because another removal had failed.
        store.remove(&ownership, *id, Box::new(move |result| _ = done.send(result)));
    }
    drop(done);
    for result in emptied {
        result?;
    }
    let now = server.ambient.now();
    let read = |(id, bytes): (RecordId, Vec<u8>)| {
        let (head, record) = bytes.split_first_chunk::<HEAD>().ok_or("it is too short")?;
        let [until @ .., kind] = *head;
        let (until, is_resilient) = (u64::from_le_bytes(until), kind == 1);
        let record = OpenRecord::from_bytes(record).map_err(|error| error.to_string())?;
        // The clock may have been set back, so the Open is kept no longer than its own timeout.
        let most = u64::from(record.timeout_ms).saturating_mul(TICKS_PER_MS);
        let ms = until.saturating_sub(now.0).min(most) / TICKS_PER_MS;
        Ok::<_, String>((id, record, Duration::from_millis(ms), is_resilient))
    };
    let (mut ready, mut resilient) = (Vec::new(), Vec::new());
    for entry in records {
        match read(entry) {
            Ok((_, _, time, _)) if time.is_zero() => {}
            Ok((id, record, time, is_resilient)) => {
                if is_resilient {
                    resilient.push((id, Duration::from_millis(record.timeout_ms.into())));
                }
                ready.push(Recorded { id, record, deadline: Instant::now() + time, holder: None });
            }
            Err(why) => tracing::warn!(target: "frevo::durable", why, "lost a durable handle"),
        }
    }
    let count = restore_all(server, ready, &|| true).unwrap_or_else(|why| {
        tracing::warn!(target: "frevo::durable", why, "lost durable handles");
        0
    });
    for (id, timeout) in resilient {
        if let Some(open) = server.durables.open(id)
            && let Some(survival) = open.survival()
        {
            survival.set_resilient(timeout);
        }
    }
    server.durables.set_handover(store, ownership);
    Ok(count)
}
