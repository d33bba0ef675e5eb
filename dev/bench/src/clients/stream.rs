//! A bare TCP stream between files: the cost of moving bytes without SMB.
//!
//! The sender reads its file and writes to the socket; the receiver reads the socket and writes to
//! its file, in parts of 1 MiB. Every client and server without signing and sealing makes these
//! copies.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Bytes of one read or write.
const STEP: usize = 1 << 20;

/// Copies until the end of `from`.
fn copy(mut from: impl Read, mut to: impl Write) -> Result<u64> {
    let mut buffer = vec![0; STEP];
    let mut total = 0;
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(total);
        }
        to.write_all(&buffer[..count])?;
        total += count as u64;
    }
}

/// Serves requests in turn until killed; prints its address as the first line.
pub(crate) fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    for stream in listener.incoming() {
        // A client that disconnects ends only its own transfer, so the error is ignored.
        let _ = serve_one(&stream?);
    }
    Ok(())
}

/// Serves a line `get PATH` or `put PATH` and then the bytes; answers one byte when all are
/// written.
fn serve_one(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut line = Vec::new();
    // The line is read byte by byte, because the bytes after it belong to the file and must stay in
    // the stream.
    let mut byte = [0];
    while (&*stream).read(&mut byte)? == 1 && byte != [b'\n'] {
        line.extend(byte);
    }
    let line = String::from_utf8(line)?;
    let (verb, path) = line.split_once(' ').context("the request has no path")?;
    if verb == "get" {
        copy(File::open(path)?, stream)?;
    } else {
        copy(stream, File::create(path)?)?;
        (&*stream).write_all(b".")?;
    }
    Ok(())
}

/// Runs the client: `verb` is `get` or `put`, `there` the server's path, `here` the local path.
pub(crate) fn transfer(address: &str, verb: &str, there: &Path, here: &Path) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    writeln!(stream, "{verb} {}", there.display())?;
    match verb {
        "get" => drop(copy(&stream, File::create(here)?)?),
        "put" => {
            copy(File::open(here)?, &stream)?;
            stream.shutdown(std::net::Shutdown::Write)?;
            stream.read_exact(&mut [0])?;
        }
        _ => bail!("{verb} is neither get nor put"),
    }
    Ok(())
}

/// A running [`serve`]; stopped when dropped.
pub(super) struct StreamServer {
    child: std::process::Child,
    pub(super) address: String,
}

impl StreamServer {
    pub(super) fn start() -> Result<Self> {
        let mut child = crate::server::command(&std::env::current_exe()?)
            .arg("stream-server")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .context("starting the stream's server (and setpriv)")?;
        let stdout = child.stdout.take().context("the stream server's standard output")?;
        let mut server = Self { child, address: String::new() };
        BufReader::new(stdout).read_line(&mut server.address)?;
        server.address = server.address.trim().to_owned();
        Ok(server)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for StreamServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
