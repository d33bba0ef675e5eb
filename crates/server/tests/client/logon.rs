//! SESSION_SETUP from the client's side.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::rc::Rc;

use frevo_auth::initiator::Step;
use frevo_auth::{Credentials, Entropy, Initiator, Secret, Target, Zeroizing};
use frevo_crypto::{OpeningKey, SealingKey, Sender, SigningKey};
use frevo_proto::Dialect;
use frevo_proto::preauth::SessionPreauth;
use frevo_wire::command::negotiate::{GlobalCapabilities, SecurityMode};
use frevo_wire::command::session_setup::{self, SessionFlags, SessionSetupFlags};
use frevo_wire::{Command, Status};

use super::draft::{Draft, Reply, Via, pack};
use super::peer::Peer;
use super::world::password;

/// Keys that all channels of a session share, nonces included.
pub struct Keys {
    pub sealing: Option<SealingKey>,
    pub opening: Option<OpeningKey>,
}

/// A session, as one connection uses it.
pub struct Logon {
    pub id: u64,
    /// Channel.SigningKey
    pub signing: SigningKey,
    pub keys: Rc<Keys>,
    /// SessionFlags of the response.
    pub flags: SessionFlags,
}

impl Logon {
    /// The protection that the session demands, or signing.
    pub fn via(&self) -> Via<'_> {
        if self.flags.contains(SessionFlags::ENCRYPT_DATA) {
            Via::Sealed(self)
        } else {
            Via::Signed(self)
        }
    }
}

/// The fields of SESSION_SETUP, besides the tokens.
pub struct Setup<'a> {
    pub user: &'a str,
    pub password: String,
    pub flags: SessionSetupFlags,
    pub mode: SecurityMode,
    pub previous: u64,
    /// SessionId of the first request.
    pub session_id: u64,
    pub via: Via<'a>,
    /// The binding's session.
    pub bound: Option<&'a Logon>,
}

impl<'a> Setup<'a> {
    pub fn of(user: &'a str) -> Self {
        Self {
            user,
            password: password(user),
            flags: SessionSetupFlags::EMPTY,
            mode: SecurityMode::SIGNING_ENABLED,
            previous: 0,
            session_id: 0,
            via: Via::Plain,
            bound: None,
        }
    }

    /// Binds `logon`, a session of `user`, to another connection.
    pub fn binding(user: &'a str, logon: &'a Logon) -> Self {
        Self {
            flags: SessionSetupFlags::BINDING,
            session_id: logon.id,
            via: Via::Signed(logon),
            bound: Some(logon),
            ..Self::of(user)
        }
    }

    /// Authenticates `logon` anew.
    pub fn again(user: &'a str, logon: &'a Logon) -> Self {
        Self { session_id: logon.id, via: logon.via(), ..Self::of(user) }
    }

    pub fn draft(&self, token: &[u8], session_id: u64) -> Draft {
        Draft::new(Command::SESSION_SETUP).session(session_id).with(|w| {
            session_setup::Request {
                flags: self.flags,
                security_mode: self.mode,
                capabilities: GlobalCapabilities::EMPTY,
                previous_session_id: self.previous,
                security_buffer: token,
            }
            .encode(w);
        })
    }
}

/// An initiator for `user`.
pub fn initiator(user: &str, password: &str) -> Initiator {
    let credentials = Credentials {
        user: user.into(),
        domain: String::new(),
        secret: Secret::Password(Zeroizing::new(password.into())),
    };
    let target = Target { workstation: "TESTS".into(), ..Target::default() };
    Initiator::new(credentials, target, entropy())
}

/// Eight bytes that were not there before.
fn random() -> [u8; 8] {
    RandomState::new().build_hasher().finish().to_le_bytes()
}

fn entropy() -> Entropy {
    let mut session_key = Zeroizing::new([0; 16]);
    session_key[..8].copy_from_slice(&random());
    session_key[8..].copy_from_slice(&random());
    Entropy { client_challenge: random(), session_key }
}

/// Rounds of an exchange, one by one.
pub struct Exchange<'a> {
    pub setup: Setup<'a>,
    pub initiator: Initiator,
    pub preauth: SessionPreauth,
    pub session_id: u64,
    /// The next token to send.
    pub token: Vec<u8>,
    pub key: Option<frevo_auth::SessionKey>,
    last: Option<Reply>,
}

impl<'a> Exchange<'a> {
    pub fn new(peer: &Peer, setup: Setup<'a>) -> Self {
        let initiator = initiator(setup.user, &setup.password);
        Self::with(peer, setup, initiator, 0)
    }

    /// Begins a logon by another way, at the time `now`.
    pub fn with(peer: &Peer, setup: Setup<'a>, mut initiator: Initiator, now: u64) -> Self {
        let token = initiator.initial_token(&peer.hint, now).unwrap();
        Self {
            session_id: setup.session_id,
            preauth: peer.preauth.session_setup(),
            setup,
            initiator,
            token,
            key: None,
            last: None,
        }
    }

    /// Sends the present token and takes in the answer, whatever it is.
    pub async fn round(&mut self, peer: &mut Peer) -> Reply {
        let mut draft = self.setup.draft(&self.token, self.session_id);
        peer.stamp(&mut draft);
        let id = draft.header.message_id;
        let request = pack(&[draft], self.setup.via);
        self.preauth.on_request(&[&request]);
        peer.send_frame(&request).await;
        let reply = peer.final_reply(id).await;
        self.session_id = reply.header.session_id;
        self.preauth.on_response(reply.status(), &[&reply.message]);
        if matches!(reply.status(), Status::SUCCESS | Status::MORE_PROCESSING_REQUIRED) {
            let response = session_setup::Response::parse(&reply.message).unwrap();
            match self.initiator.step(response.security_buffer, 0).unwrap() {
                Step::Continue(token) => self.token = token,
                Step::Done(key) => self.key = Some(key),
            }
        }
        self.last = Some(reply.clone());
        reply
    }

    /// The session, once a round has been a success.
    pub fn logon(self, peer: &mut Peer) -> Rc<Logon> {
        let reply = self.last.expect("a last round");
        let response = session_setup::Response::parse(&reply.message).unwrap();
        let terms = peer.terms();
        let key = self.key.expect("the initiator is done");
        let keys = terms.session_keys(&key, self.preauth.hash()).unwrap();
        let shared = match self.setup.bound {
            Some(bound) => Rc::clone(&bound.keys),
            None => Rc::new(Keys {
                sealing: keys.sealing_key(Sender::Client),
                opening: keys.opening_key(Sender::Client),
            }),
        };
        let logon = Rc::new(Logon {
            id: reply.header.session_id,
            signing: terms.signing_key(&keys),
            keys: shared,
            flags: response.session_flags,
        });
        assert!(reply.sealed || reply.is_signed(), "success is signed or sealed");
        if reply.is_signed() {
            let mut message = reply.message.clone();
            assert!(
                frevo_proto::protection::signature::verify(
                    &mut message,
                    &logon.signing,
                    Sender::Server
                ),
                "the server's success is signed with the new key"
            );
        }
        peer.logons.push(Rc::clone(&logon));
        logon
    }
}

impl Peer {
    /// Logs on; the refusing reply when it does not come to that.
    pub async fn try_log_on(&mut self, setup: Setup<'_>) -> Result<Rc<Logon>, Reply> {
        let mut exchange = Exchange::new(self, setup);
        let first = exchange.round(self).await;
        if first.status() != Status::MORE_PROCESSING_REQUIRED {
            return Err(first);
        }
        let second = exchange.round(self).await;
        if second.status() != Status::SUCCESS {
            return Err(second);
        }
        Ok(exchange.logon(self))
    }
    pub async fn log_on(&mut self, user: &str) -> Rc<Logon> {
        self.try_log_on(Setup::of(user)).await.expect("the logon succeeds")
    }

    /// Authenticates `logon` anew; its keys stay as they are.
    pub async fn log_on_again(&mut self, setup: Setup<'_>) -> Reply {
        let mut exchange = Exchange::new(self, setup);
        let first = exchange.round(self).await;
        if first.status() != Status::MORE_PROCESSING_REQUIRED {
            return first;
        }
        exchange.round(self).await
    }

    /// True where the dialect has the pre-authentication hash.
    pub fn is_3_1_1(&self) -> bool {
        self.terms().dialect == Dialect::SMB_3_1_1
    }
}
