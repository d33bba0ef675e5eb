//! A server inside another program: the share `data`, whose files are in memory, for the
//! user `ann` with the password `secret`. It prints its events.
//!
//! ```sh
//! cargo run -p frevo-server --example embed -- 127.0.0.1:4450
//! smbclient //127.0.0.1/data -p 4450 -U ann%secret -c 'put README.md; ls'
//! ```
#![allow(clippy::print_stdout, reason = "the events are what it shows")]

use std::sync::Arc;

use frevo_server::{Server, UserList, vfs};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4450".to_owned());
    let (parts, mut events) = Server::builder()
        .share("data", vfs::memory(64 << 20))
        .accounts(Arc::new(UserList::new().user("ann", "secret")))
        .events(1_000);
    let server = parts.build()?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);

    let mut serving = std::pin::pin!(server.serve(listener));
    loop {
        tokio::select! {
            ended = &mut serving => return ended,
            stop = tokio::signal::ctrl_c() => {
                stop?;
                println!("stopping: {:?}", server.metrics());
                server.stop();
            }
            Some((_, event)) = events.next() => {
                println!("{} by {}", event.kind().name(), event.user().unwrap_or("a stranger"));
            }
        }
    }
}
