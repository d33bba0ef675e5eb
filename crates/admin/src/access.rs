//! The right to use the interface.

use std::fmt;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::limits::{TOKEN_CHARS_MIN, WRONG_TOKEN_DELAY};

/// The secret that requests on TCP must have. Only its hash is kept.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// Makes the token of a text.
    ///
    /// # Errors
    /// When the text is too short to be a secret, or has characters that no header can have.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < TOKEN_CHARS_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "a token needs at least {TOKEN_CHARS_MIN} letters, digits or signs, without blanks"
            ));
        }
        Ok(Self(digest(text)))
    }

    /// True for the text of the token. The time of the comparison tells nothing: hashes are
    /// compared, whole.
    pub(crate) fn is(&self, text: &str) -> bool {
        let pairs = self.0.iter().zip(digest(text));
        pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The rights of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The kernel vouches for it: root, or the user of the server.
    Local,
    /// On TCP, where each request must have the token.
    Remote,
}

/// True for the users that may use the Unix socket.
pub(crate) fn may_connect(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Checks the token of a request. A wrong one is answered late.
pub(crate) async fn has_token(token: Option<&Token>, authorization: Option<&str>) -> bool {
    let Some(text) = authorization else { return false };
    let text = text.strip_prefix("Bearer ").unwrap_or_default();
    if token.is_some_and(|token| token.is(text)) {
        return true;
    }
    delay(WRONG_TOKEN_DELAY).await;
    false
}

async fn delay(time: Duration) {
    tokio::time::sleep(time).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_itself_alone_and_never_shown() {
        let token = Token::new(" correct-horse-battery\n").unwrap();
        assert!(token.is("correct-horse-battery"));
        for wrong in ["", "correct-horse-batterz", "correct-horse-battery ", "c"] {
            assert!(!token.is(wrong), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
        for bad in
            ["", "short", "has a blank in its middle", "b\u{e4}ttery-b\u{e4}ttery-b\u{e4}ttery"]
        {
            assert!(Token::new(bad).is_err(), "{bad}");
        }
    }
}
