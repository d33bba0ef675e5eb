//! Requests of clients that the brake of a share has hold of. Without a brake a request costs one branch.

use std::sync::Arc;

use frevo_wire::command::create::{self, CreateDisposition, CreateOptions};
use frevo_wire::command::{ioctl, set_info};
use frevo_wire::{Command, Status};

use super::ioctl::table;
use crate::command::Row;
use crate::command::request::Request;
use crate::objects::refusal::Refusal;
use crate::shares::brake::{Braked, Grip};

/// The reason for the end of a session, and for the refusal of its account.
pub(crate) const CUT: &str = "the brake of a share has taken hold of the account";

/// The client of a request as the brake of its share has it.
#[inline]
fn braked<'a>(rq: &'a Request<'_>) -> Option<&'a Arc<Braked>> {
    rq.tree.as_ref()?.braked.as_ref()
}

/// Refuses a request that would change something for a client that is held, and each request of one whose session
/// is to end.
///
/// # Errors
/// ACCESS_DENIED, or USER_SESSION_DELETED once the session has ended.
#[inline]
pub(crate) fn check(rq: &Request<'_>) -> Result<(), Refusal> {
    match braked(rq) {
        None => Ok(()),
        Some(braked) => check_braked(rq, braked),
    }
}

fn check_braked(rq: &Request<'_>, braked: &Braked) -> Result<(), Refusal> {
    match braked.grip() {
        Grip::Held if changes(rq) => Err(Status::ACCESS_DENIED.into()),
        Grip::Free | Grip::Slowed | Grip::Held => Ok(()),
        Grip::Cut => {
            if let Some(session) = rq.session.as_ref().filter(|_| braked.begins_to_end()) {
                rq.server().dismiss_apart(session, CUT);
            }
            Err(Status::USER_SESSION_DELETED.into())
        }
    }
}

/// The client of a request that is to be slowed down. None for requests that change nothing.
pub(crate) fn slowed<'a>(rq: &'a Request<'_>, row: &Row) -> Option<&'a Arc<Braked>> {
    let is_slowed =
        |braked: &&Arc<Braked>| braked.grip() == Grip::Slowed && row.is_paced && changes(rq);
    braked(rq).filter(is_slowed)
}

/// True for a request that changes, makes or removes a file, or may do so later by its handle alone.
fn changes(rq: &Request<'_>) -> bool {
    match rq.header.command {
        Command::WRITE => true,
        Command::CREATE => create::Request::parse(rq.message).is_ok_and(|request| {
            request.create_disposition != CreateDisposition::OPEN
                || request.create_options.contains(CreateOptions::DELETE_ON_CLOSE)
        }),
        Command::SET_INFO => set_info::Request::parse(rq.message)
            .is_ok_and(|request| super::set_info::modifies(&request)),
        Command::IOCTL => {
            let request = ioctl::Request::parse(rq.message);
            request.is_ok_and(|request| table::row(request.ctl_code).is_some_and(|row| row.changes))
        }
        _ => false,
    }
}
