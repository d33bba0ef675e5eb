//! Channels that are lost one by one, and come back.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::evil::between;
use crate::world;

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use between::Between;
use frevo_client::internal::{Dial, Dialing};
use frevo_client::{ChannelInfo, Client, Credentials, OpenOptions, Options, ServerName, Session};
use frevo_net::transport::Stream;
use parking_lot::Mutex;
use world::{World, in_world};

/// Makes TCP connections that the test can cut.
#[derive(Debug)]
struct Cuttable {
    server: SocketAddr,
    made: Mutex<Vec<TcpStream>>,
}

impl Dial for Cuttable {
    fn dial<'a>(&'a self, _: &'a ServerName) -> Dialing<'a> {
        Box::pin(async {
            let stream = tokio::net::TcpStream::connect(self.server).await?.into_std()?;
            self.made.lock().push(stream.try_clone()?);
            Ok(Stream::Tcp(tokio::net::TcpStream::from_std(stream)?))
        })
    }
}

impl Cuttable {
    fn cut(&self, at: usize) {
        self.made.lock()[at].shutdown(Shutdown::Both).unwrap();
    }

    fn dialed(&self) -> usize {
        self.made.lock().len()
    }
}

/// Serves `world` over TCP and logs on with this many channels.
async fn session(world: &World, channels: usize) -> (Session, Arc<Cuttable>) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let dial =
        Arc::new(Cuttable { server: listener.local_addr().unwrap(), made: Mutex::new(Vec::new()) });
    let server = world.embedded.clone();
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(server.serve_connection(Stream::Tcp(stream)).unwrap());
        }
    });
    let options = Options::new().channels(channels);
    let client = Client::with_dialer(options, Arc::clone(&dial) as Arc<dyn Dial>);
    let user = Credentials::new("ann", "secret");
    (client.connect(ServerName::new("frevo"), user).await.unwrap(), dial)
}

/// Waits until the session has this many channels after this many connections were made.
async fn until(session: &Session, dial: &Cuttable, channels: usize, dialed: usize) {
    for _ in 0..2_000 {
        let has = session.info().is_some_and(|info| info.channels == channels);
        if has && dial.dialed() == dialed {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}, {} connections made", session.info(), dial.dialed());
}

#[test]
fn lost_channels_come_back_and_no_operation_fails() {
    in_world(async |world| {
        let (session, dial) = session(world, 3).await;
        assert_eq!((session.info().unwrap().channels, dial.dialed()), (3, 3));
        let share = session.share("data").await.unwrap();
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&share, "f").await.unwrap();
        file.write_all_at(&vec![1; 500_000], 0).await.unwrap();
        file.read_exact_at(&mut vec![0; 400_000], 0).await.unwrap();
        let all = session.channels();
        let sum = |of: &dyn Fn(&ChannelInfo) -> u64| all.iter().map(of).sum::<u64>();
        assert!(sum(&|one| one.sent) > 500_000 && sum(&|one| one.received) > 400_000, "{all:?}");
        // Cuts the channels one after the other. The first one is cut, too, although its key signs
        // the binding of further channels.
        for (round, cut) in [0, 1, 3, 2].into_iter().enumerate() {
            let before = session.channels();
            dial.cut(cut);
            let data = vec![round as u8; 300_000];
            file.write_all_at(&data, 0).await.unwrap();
            let mut read = vec![0; data.len()];
            file.read_exact_at(&mut read, 0).await.unwrap();
            assert!(read == data, "round {round}");
            until(&session, &dial, 3, 4 + round).await;
            let after = session.channels();
            let stay = after.iter().filter(|one| before.iter().any(|old| old.number == one.number));
            assert_eq!(
                (before.len(), after.len(), stay.count()),
                (3, 3, 2),
                "{before:?} {after:?}"
            );
            let is_told = |one: &ChannelInfo| {
                one.requests > 0 && one.sent > 0 && one.received > 0 && one.server.is_some()
            };
            assert!(after.iter().all(is_told), "{after:?}");
        }
        assert_eq!(world.server.sessions().len(), 1, "the session is the same one");
        session.log_off().await;
    });
}

#[test]
fn a_session_chooses_its_channels_and_none_are_made_after_it() {
    in_world(async |world| {
        // The dialer cannot connect to addresses, so the only channel is the one to the server's
        // name.
        let (session, dial) = session(world, 0).await;
        until(&session, &dial, 1, 1).await;
        session.share("data").await.unwrap().write("f", b"1").await.unwrap();
        session.log_off().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(dial.dialed(), 1);
    });
}

/// MS-SMB2 2.2.13.2.11: a durable handle is one to a file. A server may refuse it at a pipe.
#[test]
fn only_files_get_a_create_guid_for_several_channels() {
    in_world(async |world| {
        let sent: Arc<Mutex<Vec<bool>>> = Arc::default();
        let seen = Arc::clone(&sent);
        let there = move |frame: Vec<u8>| {
            // The command at offset 12 of an SMB2 header is 5 for CREATE.
            if frame.starts_with(b"\xFESMB") && frame.get(12..14) == Some(&[5, 0]) {
                seen.lock().push(frame.windows(4).any(|four| four == b"DH2Q"));
            }
            vec![frame]
        };
        let server = Arc::clone(&world.wire) as Arc<dyn Dial>;
        let line = Between { server, there: Arc::new(there), back: Arc::new(|frame| vec![frame]) };
        let client = Client::with_dialer(Options::new().channels(2), Arc::new(line));
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("frevo"), user).await.unwrap();
        assert!(session.shares().await.unwrap().len() > 2);
        assert_eq!(std::mem::take(&mut *sent.lock()), [false], "the pipe srvsvc");
        let share = session.share("data").await.unwrap();
        let options = OpenOptions::new().write(true).create(true);
        options.open(&share, "f").await.unwrap().close().await.unwrap();
        assert!(sent.lock().contains(&true), "{sent:?}");
        session.log_off().await;
    });
}
