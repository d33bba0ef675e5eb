//! `POST /password`: users who change their own passwords. It needs no token, and is for those who know
//! the present password.

use std::net::{IpAddr, Ipv4Addr};

use frevo_server::{NotOwn, OwnPassword, Server};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use crate::access::{Caller, Remote};
use crate::answers::{Answer, answer, json, refusal};
use crate::body::body;
use crate::manage::Secret;

/// The body of the request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PasswordBody {
    user: String,
    present: Secret,
    new: Secret,
}

/// Changes a password.
pub(crate) async fn change(request: Request<Incoming>, caller: Caller, server: &Server) -> Answer {
    let address = match caller {
        Caller::Local => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Caller::Remote(Remote { address, is_secure }) => {
            if !is_secure && !address.to_canonical().is_loopback() {
                let why = "passwords are changed over TLS alone";
                return refusal(StatusCode::FORBIDDEN, why);
            }
            address
        }
    };
    let wanted: PasswordBody = match body(request).await {
        Ok(wanted) => wanted,
        Err(answer) => return answer,
    };
    let text = |secret: &Secret| Zeroizing::new(secret.text().to_owned());
    let (present, new) = (text(&wanted.present), text(&wanted.new));
    let done = server.change_own_password(OwnPassword { user: wanted.user, present, new, address });
    match done.await {
        Ok(()) => json(&json!({ "changed": true })),
        Err(why) => told(&why),
    }
}

fn told(why: &NotOwn) -> Answer {
    let (status, words, field) = match why {
        NotOwn::Wrong => (
            StatusCode::FORBIDDEN,
            String::from(
                "the user or the present password is wrong, or too many were wrong before",
            ),
            "present",
        ),
        NotOwn::Forbidden(fault) => (StatusCode::FORBIDDEN, fault.words().to_owned(), "user"),
        NotOwn::Unusable(why) => {
            let why = why.trim_start_matches("it ");
            (StatusCode::UNPROCESSABLE_ENTITY, format!("the new password {why}"), "new")
        }
        NotOwn::NotKept => (
            StatusCode::CONFLICT,
            String::from("the password of this user is kept elsewhere; ask an administrator"),
            "user",
        ),
        _ => (
            StatusCode::INTERNAL_SERVER_ERROR,
            String::from("the password could not be stored; the log of the server says more"),
            "user",
        ),
    };
    answer(status, "application/json", json!({ "error": words, "field": field }).to_string())
}
