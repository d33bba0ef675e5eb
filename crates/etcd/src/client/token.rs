//! The token that stands for a name and a password.

use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;

use bytes::Bytes;
use hyper::header::HeaderValue;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::endpoint::Member;
use super::exchange::{Miss, Sending, exchange};
use super::shared::Shared;
use crate::json::{self, Call};
use crate::types::Fault;

/// The token of a client, which all of its requests use.
#[derive(Default)]
pub(super) struct Token {
    known: Mutex<Known>,
    /// The turn to ask for a token.
    renewing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
enum Known {
    /// A token must be asked for.
    #[default]
    Nothing,
    /// etcd asks nobody for a name.
    NotNeeded,
    Token(Arc<HeaderValue>),
}

impl Shared {
    /// Returns the token, which is asked for if it is not known. None where there is no account.
    pub(super) async fn token(&self, member: &Member) -> Result<Option<Arc<HeaderValue>>, Miss> {
        let Some(account) = &self.options.account else { return Ok(None) };
        if let Some(known) = self.known_token() {
            return Ok(known);
        }
        let _turn = self.token.renewing.lock().await;
        if let Some(known) = self.known_token() {
            return Ok(known);
        }
        let body = Zeroizing::new(json::authenticate(&account.name, &account.password));
        let body = Bytes::from_owner(body);
        let is_sent = AtomicBool::new(false);
        let sending =
            Sending { call: Call::Authenticate, body: &body, token: None, is_sent: &is_sent };
        let answer = match exchange(member, &sending).await {
            Ok(answer) => Zeroizing::new(answer),
            Err(Miss::End(Fault::Refused(why)))
                if why.contains("authentication is not enabled") =>
            {
                *self.token.known.lock() = Known::NotNeeded;
                return Ok(None);
            }
            // Only the request for a token was sent, so the caller's own request has certainly not
            // happened.
            Err(Miss::Unknown(why)) => return Err(Miss::NotHappened(why)),
            Err(Miss::Token) => return Err(Miss::End(self.no_token())),
            Err(miss) => return Err(miss),
        };
        let token = json::token_answer(&answer)?;
        let mut value = HeaderValue::from_str(&token)
            .map_err(|_| Fault::Malformed("a token that no head can hold"))?;
        value.set_sensitive(true);
        let token = Arc::new(value);
        *self.token.known.lock() = Known::Token(Arc::clone(&token));
        Ok(Some(token))
    }

    fn known_token(&self) -> Option<Option<Arc<HeaderValue>>> {
        match &*self.token.known.lock() {
            Known::Nothing => None,
            Known::NotNeeded => Some(None),
            Known::Token(token) => Some(Some(Arc::clone(token))),
        }
    }

    /// Forgets a token that etcd refused, unless another request has a newer one by now.
    pub(super) fn forget(&self, used: Option<&Arc<HeaderValue>>) {
        let mut known = self.token.known.lock();
        let is_known = match (&*known, used) {
            (Known::Token(known), Some(used)) => Arc::ptr_eq(known, used),
            (Known::NotNeeded, None) => true,
            _ => false,
        };
        if is_known {
            *known = Known::Nothing;
        }
    }

    /// Forgets the token, whichever it is.
    pub(super) fn forget_any(&self) {
        *self.token.known.lock() = Known::Nothing;
    }
}
