//! Delivery of break notifications: over one channel of the client after another, until
//! one of them takes it. MS-SMB2 3.3.4.6 and 3.3.4.7.

use std::sync::Arc;

use frevo_net::file_io;
use parking_lot::Mutex;

use super::parcel::{Parcel, Via};
use crate::base::limits::BREAKS_PASSED_ON;
use crate::objects::durable;
use crate::objects::notice::{ConnectionHandle, Notice};
use crate::objects::open::FileOpen;
use crate::objects::server::ServerState;

/// Hands a notification to the next channel of its client. After the last channel the
/// break ends, as MS-SMB2 3.3.4.6 and 3.3.4.7 demand where no connection is left.
///
/// All retries are made here: a connection that cannot deliver a notification passes it
/// to this function.
pub(crate) fn deliver(server: &Arc<ServerState>, mut parcel: Parcel) {
    if planted!(LostBreak) {
        return;
    }
    let is_over = |number| !parcel.cell.lock().oplocks.is_breaking(parcel.broken.owner, number);
    if !parcel.tried.is_empty() && parcel.broken.number.is_some_and(is_over) {
        // Nothing is left to deliver, because the break was acknowledged, its Open closed, or the
        // wait given up.
        return;
    }
    while let Some((connection, handle, via)) = next_channel(server, &parcel) {
        parcel.tried.push(connection);
        parcel.via = Some(via);
        match handle.send(Notice::Break(Box::new(parcel))) {
            Ok(()) => return,
            Err(Notice::Break(back)) => parcel = *back,
            Err(_) => return,
        }
    }
    end(server, &parcel);
}

/// Delivers the notifications of a connection that cannot deliver them; many of them on another
/// thread.
pub(crate) fn deliver_all(server: &Arc<ServerState>, mut parcels: Vec<Parcel>) {
    let rest = parcels.split_off(parcels.len().min(BREAKS_PASSED_ON));
    for parcel in parcels {
        deliver(server, parcel);
    }
    if rest.is_empty() {
        return;
    }
    let (told, rest) = (Arc::clone(server), Arc::new(Mutex::new(rest)));
    let pass_on = move || {
        let parcels = std::mem::take(&mut *rest.lock());
        parcels.into_iter().for_each(|parcel| deliver(&told, parcel));
    };
    if file_io::stays() || server.blocking_pool.run_for_core(pass_on.clone()).is_err() {
        pass_on();
    }
}

/// Ends a break whose client has no connection left: it has lost what it cached, unless a
/// persistent Open keeps it.
fn end(server: &Arc<ServerState>, parcel: &Parcel) {
    let is_kept = durable::on_break(server, &parcel.broken);
    let Some(number) = parcel.broken.number else { return };
    let mut state = parcel.cell.lock();
    if is_kept {
        state.oplocks.not_told(parcel.broken.owner, number);
    } else {
        state.oplocks.expire(parcel.broken.owner, number);
    }
}

/// Tells a client that has come back of a break that it has missed: MS-SMB2 3.3.5.9.12,
/// Lease.BreakNotification.
pub(crate) fn tell_again(server: &Arc<ServerState>, file: &FileOpen) {
    let missed = file.cell.lock().oplocks.take_untold(file.id);
    if let Some(broken) = missed {
        deliver(server, Parcel::new(&file.cell, broken));
    }
}

/// True while the client has a channel that was not tried.
pub(crate) fn could_go_elsewhere(server: &ServerState, parcel: &Parcel) -> bool {
    next_channel(server, parcel).is_some()
}

/// The next channel of any session that has an Open of the file.
fn next_channel(server: &ServerState, parcel: &Parcel) -> Option<(u64, ConnectionHandle, Via)> {
    parcel.broken.routes.iter().find_map(|(_, route)| {
        let session = server.session(route.session)?;
        let (connection, handle) = session.channel_besides(&parcel.tried)?;
        Some((connection, handle, Via { session: session.id, sealed: route.sealed }))
    })
}
