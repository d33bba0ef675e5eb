//! The AS exchange: a ticket-granting ticket for a password or a key, or the ticket of a service that wants
//! the key itself as a proof. RFC 4120 section 3.1.

use super::messages::{
    AS_REP, AS_REQ, Body, EncReplyPart, EtypeInfo, KdcOptions, KdcReply, PaData, PaType, Reply,
    find, request,
};
use super::{Ask, KdcEntropy, KdcFault, KdcStep, LIFE, refused, ticket};
use crate::kerberos::asn1::{EncryptedData, number, sequence, time_field};
use crate::kerberos::message::{ErrorCode, KrbError};
use crate::kerberos::{ClientSecret, EncryptionType, Key, KeyUsage, NameType, Principal};
use crate::limits::MAX_KDC_REFERRALS;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use frevo_wire::dtyp::FileTime;

/// A logon at a KDC. The password never leaves this machine: a timestamp that is encrypted with its
/// key proves it.
#[derive(Debug)]
pub struct AsExchange {
    client: Principal,
    secret: ClientSecret,
    /// The service of the ticket. None for the ticket-granting service of the client's realm.
    service: Option<Principal>,
    /// The encryption types that are allowed, the best first.
    etypes: Vec<EncryptionType>,
    /// How the KDC makes keys of the password.
    infos: Vec<EtypeInfo>,
    cookie: Option<Vec<u8>>,
    nonce: u32,
    referrals: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The KDC was asked without a proof.
    Asked,
    /// The KDC was asked with a proof under this key.
    Proved(Key),
    Ended,
}

impl AsExchange {
    /// Begins the exchange with a KDC of the client's realm. `etypes` are the encryption types that
    /// are allowed, the best first.
    pub fn begin(
        client: Principal,
        secret: ClientSecret,
        etypes: &[EncryptionType],
        entropy: &KdcEntropy,
        now: FileTime,
    ) -> (Self, Ask) {
        Self::begin_for(None, client, secret, etypes, entropy, now)
    }

    /// Like [`Self::begin`], for the ticket of `service`: that which changes passwords takes only tickets
    /// that come from the client's own key (RFC 3244 section 2).
    pub fn begin_for(
        service: Option<Principal>,
        client: Principal,
        secret: ClientSecret,
        etypes: &[EncryptionType],
        entropy: &KdcEntropy,
        now: FileTime,
    ) -> (Self, Ask) {
        let mut exchange = Self {
            client,
            secret,
            service,
            etypes: etypes.to_vec(),
            infos: Vec::new(),
            cookie: None,
            nonce: 0,
            referrals: 0,
            state: State::Asked,
        };
        let ask = exchange.ask(None, entropy, now);
        (exchange, ask)
    }

    /// Handles the KDC's reply to the last [`Ask`].
    ///
    /// # Errors
    /// A [`KdcFault`] ends the exchange.
    pub fn on_reply(
        &mut self,
        reply: &[u8],
        entropy: &KdcEntropy,
        now: FileTime,
    ) -> Result<KdcStep, KdcFault> {
        let state = mem::replace(&mut self.state, State::Ended);
        match (Reply::parse(reply, AS_REP)?, state) {
            (_, State::Ended) => Err(KdcFault::OutOfTurn),
            (Reply::Ticket(reply), State::Asked) => {
                if let Some(infos) = find(&reply.padata, PaType::ETYPE_INFO2) {
                    self.infos = EtypeInfo::parse_list(infos)?;
                }
                let key = self.key_of(reply.sealed.etype)?;
                self.accept(&reply, &key)
            }
            (Reply::Ticket(reply), State::Proved(key)) => self.accept(&reply, &key),
            (Reply::Error(error), State::Asked) if error.code == ErrorCode::PREAUTH_REQUIRED => {
                self.prove(&error, entropy, now)
            }
            (Reply::Error(error), _) if error.code == ErrorCode::WRONG_REALM => {
                self.refer(&error, entropy, now)
            }
            (Reply::Error(error), _) => {
                let (server, realm) = (self.server(), &self.client.realm);
                Err(refused(&error, &self.client, &server, realm, now))
            }
        }
    }

    fn server(&self) -> Principal {
        let granting = || Principal::ticket_granting(&self.client.realm, &self.client.realm);
        self.service.clone().unwrap_or_else(granting)
    }

    fn not_authentic(&self) -> KdcFault {
        KdcFault::NotAuthentic { realm: self.client.realm.clone() }
    }

    /// Makes an AS-REQ, with a proof under `key` if there is one.
    fn ask(&mut self, key: Option<&Key>, entropy: &KdcEntropy, now: FileTime) -> Ask {
        self.nonce = entropy.nonce();
        let (seconds, nanoseconds) = now.to_unix();
        let is_alias = self.client.name_type == NameType::ENTERPRISE;
        let canonicalize = if is_alias { KdcOptions::CANONICALIZE } else { KdcOptions::EMPTY };
        let body = Body {
            options: canonicalize | KdcOptions::RENEWABLE_OK,
            client: Some(&self.client),
            realm: &self.client.realm,
            server: &self.server(),
            till: seconds.saturating_add(LIFE),
            nonce: self.nonce,
            etypes: &self.etypes,
        };
        let proof = key.map(|key| {
            // PA-ENC-TS-ENC (RFC 4120 section 5.2.7.2): the client proves that it has the key by
            // encrypting the time with it.
            let microseconds = number(1, i64::from(nanoseconds / 1_000));
            let time = sequence(&[&time_field(0, seconds), &microseconds]);
            let cipher = key.encrypt(KeyUsage::AS_REQ_TIMESTAMP, &entropy.confounder, &time);
            EncryptedData { etype: key.etype().number(), kvno: None, cipher: &cipher }.encode()
        });
        let mut padata = Vec::new();
        if let Some(value) = proof.as_deref() {
            padata.push(PaData { kind: PaType::ENC_TIMESTAMP, value });
            // RFC 6113 section 5.2: the client must send the KDC's cookie back.
            let cookie = self.cookie.as_deref();
            padata.extend(cookie.map(|value| PaData { kind: PaType::FX_COOKIE, value }));
        }
        let message = request(AS_REQ, &padata, &body.encode());
        Ask { realm: self.client.realm.clone(), message }
    }

    /// Answers the demand for a proof.
    fn prove(
        &mut self,
        error: &KrbError<'_>,
        entropy: &KdcEntropy,
        now: FileTime,
    ) -> Result<KdcStep, KdcFault> {
        let methods = PaData::parse_list(error.data.unwrap_or_default())?;
        if find(&methods, PaType::ENC_TIMESTAMP).is_none() {
            return Err(KdcFault::Preauthentication(Box::new(self.client.clone())));
        }
        if let Some(infos) = find(&methods, PaType::ETYPE_INFO2) {
            self.infos = EtypeInfo::parse_list(infos)?;
        }
        self.cookie = find(&methods, PaType::FX_COOKIE).map(Vec::from);
        let key = self.key()?;
        let ask = self.ask(Some(&key), entropy, now);
        self.state = State::Proved(key);
        Ok(KdcStep::Ask(ask))
    }

    /// Goes on at the realm that the user is in: RFC 6806 section 7.
    fn refer(
        &mut self,
        error: &KrbError<'_>,
        entropy: &KdcEntropy,
        now: FileTime,
    ) -> Result<KdcStep, KdcFault> {
        let is_alias = self.client.name_type == NameType::ENTERPRISE;
        let realm = error.client_realm.filter(|realm| *realm != self.client.realm);
        let Some(realm) = realm.filter(|_| is_alias) else {
            return Err(KdcFault::UnknownClient(Box::new(self.client.clone())));
        };
        self.referrals = self.referrals.saturating_add(1);
        if self.referrals > MAX_KDC_REFERRALS {
            return Err(KdcFault::TooManyReferrals(Box::new(self.server())));
        }
        self.client.realm = String::from(realm);
        self.infos = Vec::new();
        self.cookie = None;
        let ask = self.ask(None, entropy, now);
        self.state = State::Asked;
        Ok(KdcStep::Ask(ask))
    }

    /// Returns the key of the first type that the KDC prefers and that is allowed.
    fn key(&self) -> Result<Key, KdcFault> {
        let is_allowed = |number: i32| {
            EncryptionType::from_number(number).is_some_and(|etype| self.etypes.contains(&etype))
        };
        let known: Vec<i32> = if self.infos.is_empty() {
            self.etypes.iter().map(|etype| etype.number()).collect()
        } else {
            self.infos.iter().map(|info| info.etype).filter(|etype| is_allowed(*etype)).collect()
        };
        if known.is_empty() {
            return Err(KdcFault::EncryptionTypes { realm: self.client.realm.clone() });
        }
        let mut last = KdcFault::NoKey(Box::new(self.client.clone()));
        for number in known {
            match self.key_of(number) {
                Ok(key) => return Ok(key),
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }

    /// Returns the client's key of an encryption type.
    fn key_of(&self, number: i32) -> Result<Key, KdcFault> {
        let etype = EncryptionType::from_number(number);
        let Some(etype) = etype.filter(|etype| self.etypes.contains(etype)) else {
            return Err(KdcFault::EncryptionTypes { realm: self.client.realm.clone() });
        };
        match &self.secret {
            ClientSecret::Keys(keys) => {
                let key = keys.iter().find(|key| key.etype() == etype).cloned();
                key.ok_or_else(|| KdcFault::NoKey(Box::new(self.client.clone())))
            }
            ClientSecret::Password(password) => {
                let info = self.infos.iter().find(|info| info.etype == number);
                let salt = match info.and_then(|info| info.salt.clone()) {
                    Some(salt) => salt,
                    None => self.client.default_salt().into_bytes(),
                };
                let parameters = info.and_then(|info| info.parameters.as_deref());
                Key::from_password(etype, password, &salt, parameters)
                    .ok_or(KdcFault::Malformed("s2kparams"))
            }
        }
    }

    /// Checks a ticket: RFC 4120 section 3.1.5.
    fn accept(&self, reply: &KdcReply<'_>, key: &Key) -> Result<KdcStep, KdcFault> {
        let part = key
            .decrypt(KeyUsage::AS_REP, reply.sealed.cipher)
            .filter(|_| reply.sealed.etype == key.etype().number())
            .ok_or_else(|| KdcFault::WrongSecret(Box::new(self.client.clone())))?;
        let part = EncReplyPart::parse(&part)?;
        let is_alias = self.client.name_type == NameType::ENTERPRISE;
        let is_client = is_alias || reply.client == self.client;
        let is_ours = part.nonce == self.nonce
            && is_client
            && part.server == self.server()
            && reply.server == part.server;
        if !is_ours {
            return Err(self.not_authentic());
        }
        Ok(KdcStep::Done(Box::new(ticket(reply, &part, &self.etypes)?)))
    }
}
