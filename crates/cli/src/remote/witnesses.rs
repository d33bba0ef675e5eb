//! `--verbose`: the nodes of a cluster that watch the one in use, and what they tell.

use std::cell::RefCell;
use std::net::IpAddr;

use frevo_client::{Share, WitnessInfo, WitnessNews};

use super::spelling;

/// The witness of a share, as it was told last. Parallel sessions have a share of this URL each.
struct Known {
    url: String,
    address: Option<IpAddr>,
    /// Count of notifications, of the session that has heeded most of them.
    heeded: u64,
}

thread_local! {
    static BOOK: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

/// Returns a line for each share that another node watches than at the last look, and for what that node
/// has told.
pub(super) fn changes(shares: &[Share]) -> Vec<String> {
    let found = shares.iter().filter_map(|share| Some((share.url(""), share.witness()?)));
    BOOK.with_borrow_mut(|book| found.flat_map(|(url, info)| note(book, url, &info)).collect())
}

fn note(book: &mut Vec<Known>, url: String, info: &WitnessInfo) -> Vec<String> {
    let shown = spelling::in_text(&url);
    let known = match book.iter().position(|known| known.url == url) {
        Some(at) => at,
        None => {
            book.push(Known { url, address: None, heeded: 0 });
            book.len() - 1
        }
    };
    let Some(known) = book.get_mut(known) else { return Vec::new() };
    let mut lines = Vec::new();
    if info.heeded > known.heeded
        && let Some(news) = &info.last
    {
        known.heeded = info.heeded;
        lines.push(told(&shown, news));
    }
    if let Some(address) = info.address
        && known.address != Some(address)
    {
        known.address = Some(address);
        lines.push(format!("{shown} is watched by the node at {address}"));
    }
    lines
}

fn told(shown: &str, news: &WitnessNews) -> String {
    let WitnessNews { by, left, to, .. } = news;
    match to.as_slice() {
        [] => format!("the node at {by} tells that {left} is gone; {shown} is looked for"),
        to => {
            let to: Vec<String> = to.iter().map(ToString::to_string).collect();
            format!("the node at {by} tells {shown} to go from {left} to {}", to.join(" or "))
        }
    }
}
