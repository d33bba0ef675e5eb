//! `--verbose`: the open channels, and the data that each has carried.

use std::cell::RefCell;
use std::time::Duration;

use frevo_client::ChannelInfo;

use super::output::human;
use super::{logon, nodes, witnesses};
use crate::console::tell;
use crate::plural::counted;

/// Interval between looks at the channels.
const TICK: Duration = Duration::from_millis(250);

thread_local! {
    static BOOK: RefCell<Book> = RefCell::default();
}

/// Reports channels that were lost or opened since the last call, shares that are at another node of
/// a cluster, what witnesses tell, and that TCP is used instead of SMB Direct.
pub(crate) fn look() {
    logon::tell_of_tcp();
    if let Some(live) = logon::channels() {
        BOOK.with_borrow_mut(|book| book.note(live)).iter().for_each(tell);
    }
    let shares = logon::shares().unwrap_or_default();
    nodes::changes(&shares).iter().for_each(tell);
    witnesses::changes(&shares).iter().for_each(tell);
}

/// Reports changes of the channels until it is dropped.
pub(crate) async fn follow() -> std::convert::Infallible {
    loop {
        tokio::time::sleep(TICK).await;
        look();
    }
}

/// Reports the data that each channel has carried.
pub(crate) fn tell_sums() {
    if logon::channels().is_some() {
        look();
        BOOK.with_borrow(Book::sums).iter().for_each(tell);
    }
}

/// The channels at the last look, and the sum of those that were lost before.
#[derive(Default)]
struct Book {
    live: Vec<ChannelInfo>,
    lost: Option<(u64, Sum)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    requests: u64,
    sent: u64,
    received: u64,
}

impl Sum {
    fn add(&mut self, channel: &ChannelInfo) {
        self.requests = self.requests.saturating_add(channel.requests);
        self.sent = self.sent.saturating_add(channel.sent);
        self.received = self.received.saturating_add(channel.received);
    }

    fn text(self) -> String {
        let (sent, received) = (human(self.sent), human(self.received));
        format!("{}, {sent} bytes sent, {received} received", counted(self.requests, "request"))
    }
}

fn name(channel: &ChannelInfo) -> String {
    let number = channel.number;
    let by = match (channel.rdma, channel.quic) {
        (true, _) => " by SMB Direct",
        (_, true) => " over QUIC",
        _ => "",
    };
    match channel.server {
        Some(server) => format!("channel {number} to {server}{by}"),
        None => format!("channel {number}"),
    }
}

impl Book {
    /// Returns a line for each channel that was lost or opened since the last look.
    fn note(&mut self, live: Vec<ChannelInfo>) -> Vec<String> {
        let before = std::mem::replace(&mut self.live, live);
        let is_in = |all: &[ChannelInfo], one: &ChannelInfo| {
            all.iter().any(|other| other.number == one.number)
        };
        let mut lines = Vec::new();
        for gone in before.iter().filter(|one| !is_in(&self.live, one)) {
            let mut sum = Sum::default();
            sum.add(gone);
            lines.push(format!("{} is lost: {}", name(gone), sum.text()));
            let (count, all) = self.lost.get_or_insert_default();
            *count += 1;
            all.add(gone);
        }
        let new = self.live.iter().filter(|one| !is_in(&before, one));
        lines.extend(new.map(|one| format!("{} is open", name(one))));
        lines
    }

    /// Returns a line for each channel, and one for those that were lost.
    fn sums(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for one in &self.live {
            let mut sum = Sum::default();
            sum.add(one);
            lines.push(format!("{}: {}", name(one), sum.text()));
        }
        lines.extend(
            self.lost
                .map(|(count, sum)| format!("{}: {}", counted(count, "lost channel"), sum.text())),
        );
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_their_noun() {
        let sum = Sum { requests: 1, sent: 512, received: 10 << 20 };
        assert_eq!(sum.text(), "1 request, 512 bytes sent, 10M received");
    }
}
