//! The news for a client that the server has ended its session: MS-SMB2 2.2.44.2, over one channel of the
//! session after another, until one takes it (4.11.1).

use crate::objects::notice::{ConnectionHandle, Notice};

/// The way in which a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// The client knows: it has asked for the end, or has gone.
    Silent,
    /// The client is told, if it takes notifications.
    Told,
}

/// The end of a session, on its way to the channels that do not know of it yet. Each of them forgets the
/// session when it hears of the end; until then it has the key that the news is protected with.
#[derive(Debug)]
pub struct Farewell {
    /// Session.SessionId
    session: u64,
    /// The channels that do not know.
    channels: Vec<ConnectionHandle>,
}

impl Farewell {
    /// The end of `session`, of which none of its channels knows.
    pub(crate) fn new(session: u64, channels: Vec<ConnectionHandle>) -> Box<Self> {
        Box::new(Self { session, channels })
    }

    /// The session that has ended.
    pub(crate) const fn session(&self) -> u64 {
        self.session
    }

    /// Hands the news to the next channel that takes notices. After the last one the client learns of the
    /// end by its next request, or by the end of its connections.
    pub(crate) fn deliver(mut self: Box<Self>) {
        while !self.channels.is_empty() {
            let channel = self.channels.remove(0);
            match channel.send(Notice::Farewell(self)) {
                Err(Notice::Farewell(back)) => self = back,
                Ok(()) | Err(_) => return,
            }
        }
    }

    /// Has the other channels forget the session: the client is told, or knows.
    pub(crate) fn end(self) {
        for channel in self.channels {
            // The send fails if the channel has ended, and then it has forgotten the session.
            let _ = channel.send(Notice::SessionClosed(self.session));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::notice::notices;

    #[test]
    fn the_news_goes_from_channel_to_channel_until_one_takes_it() {
        let (ended, gone) = notices();
        drop(gone);
        let ((first, of_first), (second, of_second)) = (notices(), notices());
        let (third, of_third) = notices();
        Farewell::new(7, vec![ended, first, second, third]).deliver();
        let Some(Notice::Farewell(farewell)) = of_first.try_next() else { panic!("not told") };
        assert!(of_second.try_next().is_none(), "one channel is told at a time");
        farewell.deliver();
        let Some(Notice::Farewell(farewell)) = of_second.try_next() else { panic!("not told") };
        assert_eq!(farewell.session(), 7);
        farewell.end();
        assert!(matches!(of_third.try_next(), Some(Notice::SessionClosed(7))));
        assert!(of_first.try_next().is_none() && of_second.try_next().is_none());
    }
}
