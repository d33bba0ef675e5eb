//! `POST /kick` and `POST /release`: the object that their words mean.

use frevo_server::{Kick, Server, StatusQuery};
use hyper::StatusCode;
use serde::Deserialize;

use crate::limits::ROWS_MAX;

/// The body of `POST /kick` and `POST /release`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KickBody {
    /// `user`, `session`, `open`, `share`, or `any` to find out by the name.
    kind: String,
    name: String,
}

/// The target that the words of a request mean.
pub(crate) fn target_of(server: &Server, wanted: &KickBody) -> Result<Kick, (StatusCode, String)> {
    let name = wanted.name.trim();
    let number = || {
        let digits = name.strip_prefix("0x").unwrap_or(name);
        u64::from_str_radix(digits, 16).map_err(|_| {
            let why = format!("\"{name}\" is no id; frevo status and frevo opens show ids");
            (StatusCode::BAD_REQUEST, why)
        })
    };
    match &*wanted.kind {
        "user" => Ok(Kick::User(name.to_owned())),
        "share" => Ok(Kick::Share(name.to_owned())),
        "session" => number().map(Kick::Session),
        "open" => number().map(Kick::Open),
        "rpc" => number().map(Kick::Rpc),
        "any" => find(server, name),
        other => {
            let why = format!("\"{other}\" is none of user, session, open, share, rpc, any");
            Err((StatusCode::BAD_REQUEST, why))
        }
    }
}

/// The target of a release. A name without a kind is that of a session or a user: both may have gone.
pub(crate) fn held_of(server: &Server, wanted: &KickBody) -> Result<Kick, (StatusCode, String)> {
    let name = wanted.name.trim();
    if wanted.kind != "any" {
        return target_of(server, wanted);
    }
    let id = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    Ok(id.map_or_else(|| Kick::User(name.to_owned()), Kick::Session))
}

/// Finds out what a name without a kind means.
fn find(server: &Server, name: &str) -> Result<Kick, (StatusCode, String)> {
    let mut query = StatusQuery::default();
    query.limit = ROWS_MAX;
    (query.locks, query.leases) = (false, false);
    let status = server.status(&query);
    let is_same = |other: &str| Kick::names_one(other, name);
    let id = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let mut found = Vec::new();
    if status.sessions.rows.iter().any(|row| is_same(&row.user))
        || status.opens.rows.iter().any(|row| is_same(&row.user))
        || status.rpc_connections.rows.iter().filter_map(|row| row.user.as_deref()).any(is_same)
    {
        found.push(Kick::User(name.to_owned()));
    }
    if status.shares.rows.iter().any(|row| is_same(&row.name)) {
        found.push(Kick::Share(name.to_owned()));
    }
    if let Some(id) = id {
        found.extend(
            status.sessions.rows.iter().any(|row| is_same(&row.id)).then_some(Kick::Session(id)),
        );
        found
            .extend(status.opens.rows.iter().any(|row| is_same(&row.id)).then_some(Kick::Open(id)));
    }
    match found.len() {
        1 => found.pop().ok_or((StatusCode::NOT_FOUND, String::new())),
        0 => Err((
            StatusCode::NOT_FOUND,
            format!("no session, user, open file or share is called \"{name}\""),
        )),
        _ => Err((
            StatusCode::CONFLICT,
            format!("\"{name}\" is a user and a share; write user:{name} or share:{name}"),
        )),
    }
}
