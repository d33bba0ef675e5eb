//! A service that finds a virus in each file, as clamd tells it.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use frevo_server::scanning::{ScanRules, ScanService, Scanning};

use crate::PATIENCE;
use crate::client::{Mount, Peer, Want, World};

/// Scans files after they were written, by a service at a socket of `dir`.
pub fn scanning(dir: &Path) -> Scanning {
    let path = dir.join("clamd.ctl");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        listener.incoming().map_while(Result::ok).for_each(|stream| drop(serve(stream)));
    });
    let rules = ScanRules { at_open: false, ..ScanRules::default() };
    Scanning::new(rules, ScanService::ClamdSocket(path), 2, PATIENCE)
}

fn serve(mut stream: UnixStream) -> io::Result<()> {
    let mut command = Vec::new();
    while command.last() != Some(&0) {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        command.extend(byte);
    }
    if command == b"zVERSION\0" {
        return stream.write_all(b"ClamAV 1.0/1/today\0");
    }
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut piece = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        if piece.is_empty() {
            return stream.write_all(b"stream: Eicar FOUND\0");
        }
        stream.read_exact(&mut piece)?;
    }
}

/// Writes a file in a share that is scanned, and waits for the find.
pub async fn find(world: &World, peer: &mut Peer, mount: &Mount) {
    let file = peer.open_file(mount, &Want::file("v")).await;
    peer.write(mount, file, 0, b"a virus").await;
    peer.close(mount, file).await;
    let began = Instant::now();
    let is_over = || {
        let metrics = world.embedded.metrics();
        metrics.scan_finds > 0 && metrics.scans_waiting == 0
    };
    while !is_over() {
        assert!(began.elapsed() < PATIENCE, "nothing is found");
        std::thread::sleep(Duration::from_millis(2));
        tokio::task::yield_now().await;
    }
}
