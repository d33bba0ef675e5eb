//! The servers that are attacked: in memory, and at a device.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use frevo_proto::limits::SMBD_FRAGMENTED_SIZE;
use tokio::time::{Instant, sleep, timeout};

use super::super::{Endpoint, Fabric, Listener, connect, counts, registered_bytes};
use super::{Attacker, request};
use crate::frame_reader::FrameReader;
use crate::transport::{Detached, Stream};

pub(super) fn here(test: impl AsyncFn(AttackedServer)) {
    let builder = || tokio::runtime::Builder::new_current_thread();
    let fabric = Fabric::new(1 << 30);
    let target = AttackedServer { medium: Medium::Memory(Arc::clone(&fabric)), server: NOWHERE };
    let runtime = builder().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        timeout(Duration::from_secs(300), test(target)).await.expect("the test takes too long");
    });
    drop(runtime);
    assert_eq!(fabric.registered_bytes(), 0, "registered memory is left");
    let Ok(text) = std::env::var("FREVO_RDMA_ADDRESS") else { return };
    let address: IpAddr = text.parse().unwrap();
    // The tests share the counters of the process, so they run one after the other.
    static ONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _one = ONE.lock();
    let runtime = builder().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = Listener::bind(&[SocketAddr::new(address, 0)]).map_err(|(_, e)| e).unwrap();
        let server = listener.addresses()[0];
        let target = AttackedServer { medium: Medium::Device(listener), server };
        timeout(Duration::from_secs(300), test(target)).await.expect("the test takes too long");
    });
    // Connections end on threads of the runtime. Dropping the runtime waits for these threads, so
    // the counters must be 0 after it.
    drop(runtime);
    assert_eq!(registered_bytes(), 0, "registered memory is left");
    let counts = counts();
    assert_eq!((counts.regions, counts.windows), (0, 0), "regions or windows are left");
}

/// The address of ends in memory.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 445);

pub(super) enum Medium {
    Device(Listener),
    Memory(Arc<Fabric>),
}

pub(super) struct AttackedServer {
    pub(super) medium: Medium,
    pub(super) server: SocketAddr,
}

impl AttackedServer {
    /// Accepts a connection as a server does, and the peer that `connecting` makes.
    async fn meet<T>(listener: &Listener, connecting: impl Future<Output = T>) -> (Stream, T) {
        let accepting = async {
            let (detached, _) = listener.accept().await.unwrap();
            Detached::Rdma(Box::new(detached)).attach().unwrap()
        };
        tokio::join!(accepting, connecting)
    }

    /// Accepts a peer that may do anything.
    pub(super) async fn attacked(&self) -> (Stream, Attacker) {
        match &self.medium {
            Medium::Device(listener) => Self::meet(listener, Attacker::connect(self.server)).await,
            Medium::Memory(fabric) => {
                let (link, endpoint) = fabric.bare([NOWHERE; 2]).unwrap();
                (Stream::Rdma(Arc::new(endpoint)), Attacker::new(link))
            }
        }
    }

    /// Accepts a client.
    pub(super) async fn joined(&self) -> (Stream, Stream) {
        match &self.medium {
            Medium::Device(listener) => {
                let (server, client) = Self::meet(listener, connect(self.server)).await;
                (server, Stream::Rdma(Arc::new(client.unwrap())))
            }
            Medium::Memory(fabric) => {
                let [client, server] = fabric.pair([NOWHERE; 2]).unwrap();
                (Stream::Rdma(Arc::new(server)), Stream::Rdma(Arc::new(client)))
            }
        }
    }

    pub(super) fn registered_bytes(&self) -> usize {
        match &self.medium {
            Medium::Device(_) => registered_bytes(),
            Medium::Memory(fabric) => fabric.registered_bytes(),
        }
    }

    /// Waits for `done` while the listener takes the events of its connections.
    pub(super) async fn hear<T>(&self, done: impl Future<Output = T>) -> T {
        let Medium::Device(listener) = &self.medium else { return done.await };
        tokio::select! {
            biased;
            done = done => done,
            _ = listener.accept() => panic!("nobody connects"),
        }
    }

    /// Waits until connections that have ended have let go of their memory.
    pub(super) async fn settled(&self) -> usize {
        let end = Instant::now() + Duration::from_secs(10);
        while self.registered_bytes() != 0 && Instant::now() < end {
            sleep(Duration::from_millis(10)).await;
        }
        self.registered_bytes()
    }

    /// Reads as the server does, until the connection has ended.
    pub(super) async fn serve(&self, stream: Stream) {
        self.hear(async {
            let mut reader = FrameReader::new(SMBD_FRAGMENTED_SIZE);
            while let Ok(Some(_)) = reader.next(&stream).await {}
            // The connection ends while its lent memory is in use.
            stream.abort();
        })
        .await;
    }

    /// Sees that the attacker is disconnected, and that the server's end follows. A device does not
    /// tell the side whose memory was asked for that it has refused: that one hears of it when the
    /// attacker leaves.
    pub(super) async fn survive(&self, name: &str, stream: Stream, mut attacker: Attacker) {
        let told = async {
            let is_told = attacker.until(Attacker::is_over).await;
            assert!(is_told, "{name}: the attacker is not disconnected");
            drop(attacker);
        };
        let served = timeout(Duration::from_secs(16), self.serve(stream));
        let (ended, ()) = tokio::join!(served, told);
        assert!(ended.is_ok(), "{name}: the server goes on");
    }

    /// Accepts a peer that negotiates in order.
    pub(super) async fn negotiated(&self) -> (Arc<Endpoint>, Attacker) {
        let (stream, mut attacker) = self.attacked().await;
        let endpoint = Arc::clone(stream.rdma().unwrap());
        attacker.send(&request().to_bytes());
        let answered = attacker.until(|attacker| attacker.received == 1);
        let (established, is_answered) = tokio::join!(endpoint.established(), answered);
        established.unwrap();
        assert!(is_answered);
        (endpoint, attacker)
    }
}
