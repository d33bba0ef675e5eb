//! Exchanges with domain controllers.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;

use frevo_auth::kerberos::kdc::{AsExchange, KdcEntropy, KdcStep};
use frevo_auth::kerberos::{
    ChangeAnswer, ClientSecret, EncryptionType, InitiatorEntropy, Key, KeyAnswer, KeyQuestion,
    PasswordChange, Principal, ServiceKey, ServiceTicket,
};
use frevo_client::internal::{KdcSource, Kdcs};
use frevo_wire::dtyp::FileTime;

/// Most controllers that are asked.
const CONTROLLERS: usize = 4;
/// The port of the service that changes passwords, RFC 3244 section 2.
const CHANGE_PORT: u16 = 464;

/// The place that names the controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Join,
    Dns,
    Configuration,
}

/// A controller: host and port. Shown as `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Controller((String, u16));

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = &self.0;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

impl Controller {
    /// Its name, or its address.
    pub(super) fn host(&self) -> &str {
        &self.0.0
    }

    /// True for a controller without a name.
    pub(super) fn is_address(&self) -> bool {
        self.0.0.parse::<IpAddr>().is_ok()
    }
}

/// The controllers of a realm.
#[derive(Debug)]
pub(super) struct Controllers {
    pub(super) source: Source,
    pub(super) all: Vec<Controller>,
}

/// Finds the controllers of a realm: the one that was named at the join, else those that clients of
/// Kerberos use, of krb5.conf or of DNS.
///
/// # Errors
/// The reason why there are none.
pub(super) fn find(realm: &str, named: Option<&str>) -> Result<Controllers, String> {
    if let Some(named) = named {
        let one = Kdcs::named(named)
            .ok_or_else(|| format!("{named:?} is no controller; join again, with --controller"))?;
        return Ok(Controllers { source: Source::Join, all: vec![Controller(one)] });
    }
    let found =
        run(Kdcs::of(realm)).map_err(|error| format!("cannot look up controllers: {error}"))?;
    let source = match found.source {
        KdcSource::Configuration => Source::Configuration,
        KdcSource::Dns => Source::Dns,
        KdcSource::DnsSilent => {
            return Err(String::from("DNS does not answer; check /etc/resolv.conf"));
        }
    };
    if found.hosts.is_empty() {
        return Err(format!(
            "DNS has no records _kerberos._tcp.{realm}; let this host use the name servers of the \
             domain, or join with --controller"
        ));
    }
    let all = found.hosts.into_iter().take(CONTROLLERS).map(Controller).collect();
    Ok(Controllers { source, all })
}

/// Carries out an exchange. Nothing else happens meanwhile.
fn run<T>(exchange: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(exchange))
}

/// Questions about the keys of one account, to one controller.
pub(super) struct Asking<'a> {
    pub(super) controller: &'a Controller,
    pub(super) client: &'a Principal,
    pub(super) server: &'a Principal,
    pub(super) etypes: &'a [EncryptionType],
    pub(super) keys: &'a [ServiceKey],
}

impl Asking<'_> {
    /// Asks, and proves `key` where one is given.
    pub(super) fn ask(&self, key: Option<&Key>, now: FileTime) -> io::Result<KeyAnswer> {
        let mut random = [0; 20];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let (confounder, nonce) = random.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
        let nonce = nonce.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let Self { client, server, etypes, .. } = *self;
        let question = KeyQuestion { client, server, etypes, nonce, now };
        let message = question.encode(key.map(|key| (key, confounder)));
        let (host, port) = &self.controller.0;
        let answer = run(Kdcs::exchange(host, *port, &message))??;
        KeyAnswer::parse(&answer, self.keys)
            .map_err(|malformed| io::Error::other(format!("malformed answer: {malformed}")))
    }
}

/// Fills bytes from the system's cryptographic source.
fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}

impl Controller {
    /// Gives the account `client`, whose present keys are `keys`, a new password.
    pub(super) fn change_password(
        &self,
        client: &Principal,
        keys: Vec<Key>,
        password: &str,
        now: impl Fn() -> FileTime,
    ) -> io::Result<ChangeAnswer> {
        let ticket = self.ticket_for_change(client, keys, &now)?;
        let mut entropy =
            InitiatorEntropy { subkey: [0; 32], confounders: [[0; 16]; 2], sequence: [0; 4] };
        fill(&mut entropy.subkey)?;
        entropy.confounders.iter_mut().try_for_each(|bytes| fill(bytes))?;
        fill(&mut entropy.sequence)?;
        let mut sent = None;
        let exchange = Kdcs::change_password(self.host(), CHANGE_PORT, |address| {
            let (message, change) =
                PasswordChange::request(&ticket, password, address, &entropy, now());
            sent = Some(change);
            message
        });
        let reply = run(exchange)??;
        let change = sent.ok_or(io::ErrorKind::NotConnected)?;
        change.answer(&reply).map_err(|fault| io::Error::other(fault.to_string()))
    }

    /// Gets a ticket for the service that changes passwords, by the account's present keys.
    fn ticket_for_change(
        &self,
        client: &Principal,
        keys: Vec<Key>,
        now: &impl Fn() -> FileTime,
    ) -> io::Result<ServiceTicket> {
        let entropy = || -> io::Result<KdcEntropy> {
            let mut entropy = KdcEntropy { nonce: [0; 4], subkey: [0; 32], confounder: [0; 16] };
            fill(&mut entropy.nonce)?;
            fill(&mut entropy.subkey)?;
            fill(&mut entropy.confounder)?;
            Ok(entropy)
        };
        let etypes: Vec<EncryptionType> = keys.iter().map(Key::etype).collect();
        let service = Some(PasswordChange::service(&client.realm));
        let secret = ClientSecret::Keys(keys);
        let (mut exchange, mut next) =
            AsExchange::begin_for(service, client.clone(), secret, &etypes, &entropy()?, now());
        loop {
            let (host, port) = &self.0;
            let reply = run(Kdcs::exchange(host, *port, &next.message))??;
            match exchange.on_reply(&reply, &entropy()?, now()).map_err(io::Error::other)? {
                KdcStep::Ask(more) => next = more,
                KdcStep::Done(ticket) => return Ok(*ticket),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_of_a_join() {
        for (name, shown) in [
            ("dc1", "dc1:88"),
            ("192.0.2.1", "192.0.2.1:88"),
            ("2001:db8::1", "[2001:db8::1]:88"),
            ("[2001:db8::1]:750", "[2001:db8::1]:750"),
        ] {
            let found = find("A.TEST", Some(name)).unwrap();
            assert_eq!(found.source, Source::Join);
            assert_eq!(found.all.iter().map(ToString::to_string).collect::<Vec<_>>(), [shown]);
        }
        assert!(find("A.TEST", Some("")).unwrap_err().contains("--controller"));
    }
}
