//! The nodes of a cluster: their addresses on the command line (`--address`), and for `--verbose` the
//! node where each share is.

use std::cell::RefCell;
use std::str::FromStr;
use std::time::Duration;

use frevo_client::{NodeInfo, ParseUrlError, ServerAddresses, ServerName, Share};

use super::location::is_same_server;
use super::spelling;
use crate::exit::{Exit, Failure};

/// An address at which a server is looked for: `ADDRESS`, `ADDRESS:PORT`, or one of these behind
/// `HOST=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    /// The server; None for that of the URL.
    host: Option<String>,
    address: ServerName,
}

impl FromStr for NodeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, address) = match text.split_once('=') {
            Some(("", _)) => return Err(String::from("write HOST=ADDRESS, or ADDRESS alone")),
            Some((host, address)) => (Some(host.to_owned()), address),
            None => (None, text),
        };
        // An IPv6 address without brackets has no port.
        let is_v6 = address.parse::<std::net::Ipv6Addr>().is_ok();
        let bracketed = if is_v6 { format!("[{address}]") } else { address.to_owned() };
        let address = bracketed.parse().map_err(|error: ParseUrlError| error.to_string())?;
        Ok(Self { host, address })
    }
}

/// A share that was told of. Parallel sessions have one of this URL each.
struct Known {
    url: String,
    /// Count of moves, of the session that has met most of them.
    moves: u64,
}

/// The news of a share at a look.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// It was not seen before.
    Found,
    /// It has moved.
    Moved,
}

thread_local! {
    /// The server that addresses without a host belong to.
    static ADDRESSED: RefCell<Option<ServerName>> = const { RefCell::new(None) };
    static BOOK: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

/// Returns the addresses for a connection to `server`.
///
/// # Errors
/// A usage error if addresses without a host were used for another server before.
pub(crate) fn of_server(
    all: &[NodeAddress],
    server: &ServerName,
) -> Result<Vec<ServerAddresses>, Failure> {
    if all.iter().any(|one| one.host.is_none()) {
        let first = ADDRESSED.with_borrow_mut(|first| first.get_or_insert(server.clone()).clone());
        if !is_same_server(&first, server) {
            let text = format!(
                "--address without a name cannot be that of two servers, {first} and {server}; write \
                 --address {first}=ADDRESS"
            );
            return Err(Failure::new(Exit::Usage, text));
        }
    }
    let mut found: Vec<ServerAddresses> = Vec::new();
    for one in all {
        let host = one.host.as_ref().unwrap_or(&server.host);
        match found.iter_mut().find(|other| other.host.eq_ignore_ascii_case(host)) {
            Some(known) => known.addresses.push(one.address.clone()),
            None => found
                .push(ServerAddresses { host: host.clone(), addresses: vec![one.address.clone()] }),
        }
    }
    Ok(found)
}

/// Returns a line for each share whose node is another one than at the last look.
pub(super) fn changes(shares: &[Share]) -> Vec<String> {
    let found = shares.iter().filter_map(|share| Some((share.url(""), share.node()?)));
    BOOK.with_borrow_mut(|book| found.filter_map(|(url, node)| note(book, url, &node)).collect())
}

fn note(book: &mut Vec<Known>, url: String, node: &NodeInfo) -> Option<String> {
    let shown = spelling::in_text(&url);
    let place = place(node);
    // A server on its own is where its name says.
    let is_told = url.starts_with(&format!("smb://{}/", node.address)) && node.moves == 0;
    match news(book, url, node.moves)? {
        News::Found => (!is_told).then(|| format!("{shown} is at {place}")),
        News::Moved => Some(format!("{shown} moved to {place}; that took {}", seconds(node.pause))),
    }
}

/// Notes the count of moves of a share. Each of several parallel sessions meets a move in its time: that
/// of the first one is news.
fn news(book: &mut Vec<Known>, url: String, moves: u64) -> Option<News> {
    let Some(known) = book.iter_mut().find(|known| known.url == url) else {
        book.push(Known { url, moves });
        return Some(News::Found);
    };
    let has_moved = moves > known.moves;
    known.moves = known.moves.max(moves);
    has_moved.then_some(News::Moved)
}

/// The address of a node, with the IP address if that is another text.
pub(crate) fn place(node: &NodeInfo) -> String {
    match node.ip.map(|ip| ip.to_string()) {
        Some(ip) if ip != node.address.host => format!("{} ({ip})", node.address),
        _ => node.address.to_string(),
    }
}

/// A time in seconds, with a digit behind the point.
fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> NodeAddress {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_may_have_a_port_and_a_host() {
        let plain = address("192.0.2.1");
        assert_eq!((plain.host, plain.address.to_string()), (None, "192.0.2.1".into()));
        let named = address("cluster=192.0.2.1:4450");
        assert_eq!(named.host.as_deref(), Some("cluster"));
        assert_eq!(named.address, ServerName::new("192.0.2.1").at_port(4450));
        for text in ["2001:db8::1", "[2001:db8::1]"] {
            assert_eq!(address(text).address, ServerName::new("2001:db8::1"));
        }
        for wrong in ["", "=192.0.2.1", "a=", "192.0.2.1:port", "[2001:db8::1"] {
            assert!(wrong.parse::<NodeAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_move_is_told_once_for_all_sessions() {
        let mut book = Vec::new();
        let mut look = |moves| news(&mut book, String::from("smb://cluster/data"), moves);
        assert_eq!(look(0), Some(News::Found));
        assert_eq!(look(0), None, "the other session");
        assert_eq!(look(1), Some(News::Moved));
        for _ in 0..3 {
            assert_eq!(look(0), None, "the other session has not met it");
            assert_eq!(look(1), None);
        }
        assert_eq!(look(2), Some(News::Moved));
        assert_eq!(news(&mut book, String::from("smb://cluster/other"), 1), Some(News::Found));
    }

    #[test]
    fn addresses_belong_to_one_server_or_name_theirs() {
        let all = ["192.0.2.1", "192.0.2.2", "other=192.0.2.3"].map(address);
        let (one, other) = (ServerName::new("one"), ServerName::new("other"));
        let found = of_server(&all, &one).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((&*found[0].host, found[0].addresses.len()), ("one", 2));
        assert_eq!((&*found[1].host, found[1].addresses.len()), ("other", 1));
        let refused = of_server(&all, &other).unwrap_err().to_string();
        assert!(refused.contains("--address one=ADDRESS"), "{refused}");
        assert_eq!(of_server(&all[2..], &other).unwrap().len(), 1);
    }
}
