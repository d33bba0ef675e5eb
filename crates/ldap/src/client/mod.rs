//! A client of a directory: one connection at a time, to the first of several servers that answers.

mod connection;
mod options;
mod tls;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use tokio::time::timeout;

use crate::filter::Values;
use crate::limits::{ENTRIES, GROUPS, NAME_BYTES, PAGE};
use crate::message::{Entry, LdapResult, Page, ResultCode, Scope, Search};
use crate::person::{Person, PersonFault};
use connection::Connection;
pub use options::{Bind, Options, Server, ServerPlace, TlsUse};
pub use tls::{BadCertificates, connector};

/// The reason why a directory has not answered, or not as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No connection was made.
    Unreachable(String),
    /// TLS did not begin.
    Tls(String),
    /// There was no answer in time.
    Silent(Duration),
    /// The connection ended.
    Ended,
    /// The answer is not well-formed, or longer than it may be.
    Malformed(&'static str),
    /// The bind was refused.
    Bind(LdapResult),
    /// StartTLS was refused.
    StartTls(LdapResult),
    /// A search was refused.
    Search(LdapResult),
    /// Several entries have the name.
    Ambiguous,
    /// The account is in more groups than are counted.
    Groups,
    /// The entry is no account that may log on.
    Person(PersonFault),
}

impl Fault {
    /// True where another server, or another attempt, may answer.
    pub fn is_of_server(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Tls(_) | Self::Silent(_) | Self::Ended => true,
            Self::Malformed(_) | Self::StartTls(_) => true,
            Self::Bind(result) | Self::Search(result) => matches!(
                result.code,
                ResultCode::BUSY | ResultCode::UNAVAILABLE | ResultCode::UNWILLING_TO_PERFORM
            ),
            Self::Ambiguous | Self::Groups | Self::Person(_) => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "it is not reached: {why}"),
            Self::Tls(why) => write!(f, "TLS does not begin: {why}"),
            Self::Silent(time) => write!(f, "it has not answered in {} s", time.as_secs()),
            Self::Ended => f.write_str("it has ended the connection"),
            Self::Malformed(what) => write!(f, "its answer is malformed: {what}"),
            Self::Bind(result) => write!(f, "the bind is refused: {result}"),
            Self::StartTls(result) => write!(f, "StartTLS is refused: {result}"),
            Self::Search(result) => write!(f, "the search is refused: {result}"),
            Self::Ambiguous => f.write_str("several entries have this name"),
            Self::Groups => write!(f, "the account is in more than {GROUPS} groups"),
            Self::Person(fault) => write!(f, "the entry is no account: {fault}"),
        }
    }
}

impl core::error::Error for Fault {}

/// The result of a look at the accounts of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The server that has answered, as it is written in a configuration.
    pub server: String,
    /// The accounts, at most as many as were asked for.
    pub people: Vec<Person>,
    /// Entries that are no accounts of people, or that cannot be read.
    pub others: usize,
    /// True if there are more.
    pub is_cut: bool,
}

/// A directory that is asked.
pub struct Directory {
    options: Options,
    /// The connection, and the place of its server.
    connection: Option<(usize, Connection)>,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("servers", &self.options.servers).finish_non_exhaustive()
    }
}

/// A question to a directory.
#[derive(Clone, Copy)]
enum Question<'a> {
    User(&'a str),
    List(usize),
}

enum Answer {
    User(Option<Box<Person>>),
    List(Listing),
}

impl Directory {
    /// Makes a client. It connects when it is asked.
    pub const fn new(options: Options) -> Self {
        Self { options, connection: None }
    }

    /// Asks for an account with its groups. None if there is none of this name.
    ///
    /// # Errors
    /// The fault of the last server that was asked, or of the entry.
    pub async fn look_up(&mut self, user: &str) -> Result<Option<Person>, Fault> {
        if user.is_empty() || user.len() > NAME_BYTES || user.chars().any(char::is_control) {
            return Ok(None);
        }
        match self.ask(Question::User(user)).await? {
            Answer::User(person) => Ok(person.map(|person| *person)),
            Answer::List(_) => Err(Fault::Ended),
        }
    }

    /// Asks for at most `limit` accounts, without their groups.
    ///
    /// # Errors
    /// The fault of the last server that was asked.
    pub async fn list(&mut self, limit: usize) -> Result<Listing, Fault> {
        match self.ask(Question::List(limit)).await? {
            Answer::List(listing) => Ok(listing),
            Answer::User(_) => Err(Fault::Ended),
        }
    }

    /// Asks the server of the connection, then all in their order.
    async fn ask(&mut self, question: Question<'_>) -> Result<Answer, Fault> {
        if let Some((at, connection)) = self.connection.take() {
            // A server may have ended an idle connection, so its fault counts for a new one only.
            match self.ask_by(at, connection, question).await {
                Err(fault) if fault.is_of_server() => {}
                answer => return answer,
            }
        }
        let mut last = Fault::Unreachable(String::from("no server is configured"));
        for at in 0..self.options.servers.len() {
            let answer = match self.connect(at).await {
                Ok(connection) => self.ask_by(at, connection, question).await,
                Err(fault) => Err(fault),
            };
            match answer {
                Err(fault) if fault.is_of_server() => last = fault,
                answer => return answer,
            }
        }
        Err(last)
    }

    async fn connect(&self, at: usize) -> Result<Connection, Fault> {
        let server = self.options.servers.get(at).ok_or(Fault::Ended)?;
        let made = timeout(self.options.timeout, Connection::open(server, &self.options));
        made.await.unwrap_or(Err(Fault::Silent(self.options.timeout)))
    }

    async fn ask_by(
        &mut self,
        at: usize,
        mut connection: Connection,
        question: Question<'_>,
    ) -> Result<Answer, Fault> {
        let time = self.options.timeout;
        let asked = async {
            match question {
                Question::User(user) => look_up(&mut connection, &self.options, user)
                    .await
                    .map(|person| Answer::User(person.map(Box::new))),
                Question::List(limit) => {
                    let server = self.options.servers.get(at).map(ToString::to_string);
                    let listing = list(&mut connection, &self.options, limit).await?;
                    Ok(Answer::List(Listing { server: server.unwrap_or_default(), ..listing }))
                }
            }
        };
        // The whole answer has one time, so that a server that sends a byte now and then ends nothing.
        let answer = timeout(time, asked).await.unwrap_or(Err(Fault::Silent(time)));
        if answer.as_ref().err().is_none_or(|fault| !fault.is_of_server()) {
            self.connection = Some((at, connection));
        }
        answer
    }
}

async fn look_up(
    connection: &mut Connection,
    options: &Options,
    user: &str,
) -> Result<Option<Person>, Fault> {
    let values = Values { user: Some(user), ..Values::default() };
    let attributes = options.names.asked();
    let asked = |filter| search(options, &options.user_base, filter, &attributes);
    let Some(filter) = options.user_filter.encode(&values) else { return Ok(None) };
    let found = connection.search(&Search { size_limit: 2, ..asked(&filter) }, 2).await?;
    let entry = match &found.entries[..] {
        [] => return Ok(None),
        [entry] => entry,
        _ => return Err(Fault::Ambiguous),
    };
    let person = Person::of(entry, &options.names, user, &options.group_base);
    let mut person = person.map_err(Fault::Person)?;
    let gid = person.gid.map(|gid| gid.to_string());
    let values = Values { user: Some(&person.name), dn: Some(&person.dn), gid: gid.as_deref() };
    let Some(filter) = options.group_filter.encode(&values) else { return Ok(Some(person)) };
    let attributes = [&*options.names.group];
    let asked = search(options, &options.group_base, &filter, &attributes);
    let found = connection.search(&asked, GROUPS).await?;
    if found.is_cut {
        return Err(Fault::Groups);
    }
    let names = found.entries.iter().filter_map(|group| group.text(&options.names.group));
    names.for_each(|name| person.add_group(String::from(name)));
    Ok(Some(person))
}

async fn list(
    connection: &mut Connection,
    options: &Options,
    limit: usize,
) -> Result<Listing, Fault> {
    let attributes = options.names.asked();
    let mut listing =
        Listing { server: String::new(), people: Vec::new(), others: 0, is_cut: false };
    let Some(filter) = options.user_filter.encode(&Values::default()) else { return Ok(listing) };
    let limit = limit.min(ENTRIES);
    let mut cookie = Vec::new();
    loop {
        let page = Some(Page { size: PAGE, cookie: &cookie });
        let asked = search(options, &options.user_base, &filter, &attributes);
        let found = connection.search(&Search { page, ..asked }, ENTRIES).await?;
        for entry in &found.entries {
            match Person::listed(entry, &options.names, &options.group_base) {
                Ok(person) if listing.people.len() < limit => listing.people.push(person),
                Ok(_) => listing.is_cut = true,
                Err(_) => listing.others = listing.others.saturating_add(1),
            }
        }
        let seen = listing.people.len().saturating_add(listing.others);
        listing.is_cut |= found.is_cut;
        match found.cookie {
            Some(next) if !next.is_empty() && !listing.is_cut && seen < ENTRIES => cookie = next,
            Some(next) => {
                listing.is_cut |= !next.is_empty();
                return Ok(listing);
            }
            None => return Ok(listing),
        }
        if found.entries.is_empty() {
            // A server that makes empty pages would be asked for ever.
            return Ok(listing);
        }
    }
}

fn search<'a>(
    options: &Options,
    base: &'a str,
    filter: &'a [u8],
    attributes: &'a [&'a str],
) -> Search<'a> {
    let time_limit = u32::try_from(options.timeout.as_secs()).unwrap_or(0);
    Search {
        base,
        scope: Scope::Subtree,
        size_limit: 0,
        time_limit,
        filter,
        attributes,
        page: None,
    }
}

/// The entries of an answer.
struct Entries {
    entries: Vec<Entry>,
    /// The cookie of the next page. None where the server makes no pages.
    cookie: Option<Vec<u8>>,
    /// True if there are more than were asked for.
    is_cut: bool,
}

#[cfg(test)]
mod tests;
