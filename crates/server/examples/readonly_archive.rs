//! The files of a tar archive as the read-only share `archive`, without unpacking it, for
//! the user `ann` with the password `secret`.
//!
//! ```sh
//! tar -cf photos.tar photos
//! cargo run -p frevo-server --example readonly_archive -- photos.tar 127.0.0.1:4450
//! smbclient //127.0.0.1/archive -p 4450 -U ann%secret -c 'ls photos/*'
//! ```
#![allow(clippy::print_stdout, reason = "the address is for people")]

use std::fs::File;
use std::io::{self, Error, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use frevo_server::vfs::{FileRange, ReadOnlyTree};
use frevo_server::{Server, UserList};

/// Bytes of a header; content is padded to a multiple.
const BLOCK: u64 = 512;

/// Lists the members of a tar archive (POSIX ustar, and GNU's long names).
fn read_tar(archive: File) -> io::Result<ReadOnlyTree> {
    let mut tree = ReadOnlyTree::new("TAR");
    let archive = Arc::new(archive);
    let mut long_name = None;
    let mut header = [0; BLOCK as usize];
    loop {
        (&*archive).read_exact(&mut header)?;
        if header[0] == 0 {
            return Ok(tree);
        }
        let size = octal(&header[124..136])?;
        let modified = UNIX_EPOCH + Duration::from_secs(octal(&header[136..148])?);
        let at = (&*archive).stream_position()?;
        let name = long_name.take().unwrap_or_else(|| match &header[257..263] {
            b"ustar\0" if header[345] != 0 => {
                format!("{}/{}", text(&header[345..500]), text(&header[..100]))
            }
            _ => text(&header[..100]),
        });
        match header[156] {
            b'0' | 0 => {
                tree.file(&name, FileRange::new(Arc::clone(&archive), at, size), modified)?
            }
            b'5' if name != "./" => tree.directory(&name, modified)?,
            b'L' => {
                let mut bytes = Vec::new();
                (&*archive).take(size.min(4_096)).read_to_end(&mut bytes)?;
                long_name = Some(text(&bytes));
            }
            _ => println!("left out: {name}"),
        }
        (&*archive).seek(SeekFrom::Start(at + size.next_multiple_of(BLOCK)))?;
    }
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn octal(field: &[u8]) -> io::Result<u64> {
    u64::from_str_radix(text(field).trim(), 8).map_err(Error::other)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let archive = arguments.next().ok_or_else(|| Error::other("name a tar archive"))?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:4450".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Server::builder()
        .share("archive", Arc::new(read_tar(File::open(archive)?)?))
        .accounts(Arc::new(UserList::new().user("ann", "secret")))
        .serve(listener)
        .await
}
