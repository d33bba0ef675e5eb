//! The source of a user's tickets, and the tickets that it has got.

use std::path::PathBuf;
use std::sync::Arc;

use frevo_auth::kerberos::kdc::{AsExchange, KdcEntropy, KdcStep, TgsExchange};
use frevo_auth::kerberos::{
    ClientSecret, CredentialsCache, EncryptionType, Principal, ServiceTicket,
};
use frevo_wire::dtyp::FileTime;
use tokio::sync::Mutex;

use super::cache::CacheName;
use super::error::{KerberosError, Reason};
use super::krb5_conf::Krb5Conf;
use super::{Getting, Tickets, kdc, read_keytab};
use crate::ambient::Ambient;
use crate::limits::{TICKET_LEFT_SECONDS, TICKETS_KEPT};

const TICKS: u64 = 10_000_000;

/// The place that tickets come from.
#[derive(Debug)]
pub(super) enum Origin {
    /// The user's credentials cache, and the user that it had at first.
    Cache(CacheName, Principal),
    /// A keytab.
    Keytab(PathBuf, Principal),
    /// A password.
    Secret(Principal, ClientSecret),
}

/// An origin with the tickets that were got from it.
#[derive(Debug)]
pub(super) struct Source {
    origin: Origin,
    /// The realm of the user and its KDC, where the caller has named one.
    kdc: Option<(String, (String, u16))>,
    held: Mutex<HeldTickets>,
}

#[derive(Debug, Default)]
struct HeldTickets {
    /// The ticket-granting ticket that a keytab or a password got.
    granting: Option<ServiceTicket>,
    /// Tickets for servers by their names, the latest last.
    tickets: Vec<(String, Arc<ServiceTicket>)>,
}

/// A ticket-granting ticket, or already the ticket for the server.
enum Granted {
    Granting(ServiceTicket),
    Ticket(ServiceTicket),
}

impl Tickets for Source {
    fn ticket<'a>(
        &'a self,
        ambient: &'a dyn Ambient,
        host: &'a str,
        after: FileTime,
    ) -> Getting<'a> {
        Box::pin(self.get(ambient, host, after))
    }
}

impl Source {
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, kdc: None, held: Mutex::default() }
    }

    /// Has one KDC for a realm, whatever krb5.conf and DNS say.
    pub(super) fn with_kdc(mut self, realm: &str, kdc: (String, u16)) -> Self {
        self.kdc = Some((realm.into(), kdc));
        self
    }

    async fn get(
        &self,
        ambient: &dyn Ambient,
        host: &str,
        after: FileTime,
    ) -> Result<Arc<ServiceTicket>, KerberosError> {
        let mut held = self.held.lock().await;
        let now = ambient.now();
        let is_good = |ticket: &ServiceTicket| {
            ticket.end_time.0 > after.0.max(now.0.saturating_add(TICKET_LEFT_SECONDS * TICKS))
        };
        let kept = held.tickets.iter().rfind(|(of, ticket)| of == host && is_good(ticket));
        if let Some((_, ticket)) = kept {
            return Ok(Arc::clone(ticket));
        }
        let mut conf = Krb5Conf::load();
        if let Some((realm, (host, port))) = &self.kdc {
            conf.name_kdc(realm, host, *port);
        }
        let etypes = conf.etypes();
        let (found, now) = match &self.origin {
            Origin::Cache(name, client) => {
                let cache = name.read_beside().await?;
                in_cache(&cache, client, host, now, is_good)?
            }
            Origin::Keytab(path, client) => {
                let granting = match held.granting.clone().filter(is_good) {
                    Some(granting) => granting,
                    None => {
                        let keys = read_keytab(path)?.keys_of(client);
                        log_on(&conf, ambient, client, ClientSecret::Keys(keys), &etypes).await?
                    }
                };
                (Granted::Granting(granting), now)
            }
            Origin::Secret(client, secret) => {
                let granting = match held.granting.clone().filter(is_good) {
                    Some(granting) => granting,
                    None => log_on(&conf, ambient, client, secret.clone(), &etypes).await?,
                };
                (Granted::Granting(granting), now)
            }
        };
        let ticket = match found {
            Granted::Ticket(ticket) => ticket,
            Granted::Granting(granting) => {
                if !matches!(self.origin, Origin::Cache(..)) {
                    held.granting = Some(granting.clone());
                }
                grant(&conf, ambient, granting, host, &etypes, now).await?
            }
        };
        let ticket = Arc::new(ticket);
        held.tickets.retain(|(of, _)| of != host);
        if held.tickets.len() >= TICKETS_KEPT {
            held.tickets.remove(0);
        }
        held.tickets.push((host.into(), Arc::clone(&ticket)));
        Ok(ticket)
    }
}

/// Looks for a ticket in the user's cache, and returns the KDC's time with it.
fn in_cache(
    cache: &CredentialsCache,
    client: &Principal,
    host: &str,
    now: FileTime,
    is_good: impl Fn(&ServiceTicket) -> bool,
) -> Result<(Granted, FileTime), KerberosError> {
    if cache.client != *client {
        return Err(Reason::NoTicket(format!(
            "the ticket cache is now that of {}; run kinit as {client}",
            cache.client
        ))
        .into());
    }
    let offset = i64::from(cache.clock_offset).saturating_mul(TICKS as i64);
    let now = FileTime(now.0.saturating_add_signed(offset));
    let left = TICKET_LEFT_SECONDS as u32;
    let server = Principal::service("cifs", host, "");
    if let Some(ticket) = cache.find(&server, left, now).filter(|ticket| is_good(ticket)) {
        return Ok((Granted::Ticket(ticket.clone()), now));
    }
    match cache.ticket_granting(left, now).filter(|ticket| is_good(ticket)) {
        Some(granting) => Ok((Granted::Granting(granting.clone()), now)),
        None => Err(no_ticket(cache, now)),
    }
}

/// Returns the reason why a cache has no ticket that can be used.
fn no_ticket(cache: &CredentialsCache, now: FileTime) -> KerberosError {
    let client = &cache.client;
    let granting = cache.tickets.iter().filter(|ticket| ticket.server.is_ticket_granting());
    match granting.max_by_key(|ticket| ticket.end_time) {
        None => Reason::NoTicket(format!("{client} has no Kerberos ticket; run kinit")),
        Some(ticket) if ticket.end_time.0 <= now.0 => Reason::Expired(format!(
            "the Kerberos ticket of {client} expired {} ago; run kinit",
            span(now.0.saturating_sub(ticket.end_time.0) / TICKS)
        )),
        Some(ticket) if ticket.start_time.0 > now.0 => Reason::Expired(format!(
            "the Kerberos ticket of {client} is valid only in {}; check this machine's clock",
            span(ticket.start_time.0.saturating_sub(now.0) / TICKS)
        )),
        Some(_) => Reason::Expired(format!(
            "the Kerberos ticket of {client} is about to expire; run kinit"
        )),
    }
    .into()
}

/// A time in words.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn entropy(ambient: &dyn Ambient) -> Result<KdcEntropy, KerberosError> {
    let mut entropy = KdcEntropy { nonce: [0; 4], subkey: [0; 32], confounder: [0; 16] };
    let is_random = ambient.random(&mut entropy.nonce)
        && ambient.random(&mut entropy.subkey)
        && ambient.random(&mut entropy.confounder);
    if is_random {
        return Ok(entropy);
    }
    Err(Reason::Setting("the system provides no random numbers".into()).into())
}

/// Gets a ticket-granting ticket.
async fn log_on(
    conf: &Krb5Conf,
    ambient: &dyn Ambient,
    client: &Principal,
    secret: ClientSecret,
    etypes: &[EncryptionType],
) -> Result<ServiceTicket, KerberosError> {
    // A KDC chooses the first encryption type for which it has a key, so types for which the keytab
    // has a key come first.
    let mut etypes = etypes.to_vec();
    if let ClientSecret::Keys(keys) = &secret {
        etypes.sort_by_key(|etype| keys.iter().all(|key| key.etype() != *etype));
    }
    let begun = (entropy(ambient)?, ambient.now());
    let (mut exchange, mut next) =
        AsExchange::begin(client.clone(), secret, &etypes, &begun.0, begun.1);
    loop {
        let reply = kdc::ask(conf, ambient, &next).await?;
        match exchange.on_reply(&reply, &entropy(ambient)?, ambient.now())? {
            KdcStep::Ask(more) => next = more,
            KdcStep::Done(ticket) => return Ok(*ticket),
        }
    }
}

/// Gets the ticket for the server `host`. `now` is the KDC's time.
async fn grant(
    conf: &Krb5Conf,
    ambient: &dyn Ambient,
    granting: ServiceTicket,
    host: &str,
    etypes: &[EncryptionType],
    now: FileTime,
) -> Result<ServiceTicket, KerberosError> {
    let server = Principal::service("cifs", host, conf.realm_of(host).unwrap_or_default());
    let (mut exchange, mut next) =
        TgsExchange::begin(granting, server, etypes, &entropy(ambient)?, now)?;
    loop {
        let reply = kdc::ask(conf, ambient, &next).await?;
        match exchange.on_reply(&reply, &entropy(ambient)?, now)? {
            KdcStep::Ask(more) => next = more,
            KdcStep::Done(ticket) => return Ok(*ticket),
        }
    }
}
