//! The limits of the machine: transactions of etcd by a loop that does nothing else, and writes of a file
//! that are on the disk when they end.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use frevo_etcd::json::{self, Call};
use frevo_etcd::types::{LeaseId, Op, Txn};

/// Bytes of a record.
const RECORD_BYTES: usize = 600;
/// Bytes that are written before each wait for the disk.
const BLOCK_BYTES: usize = 4096;

/// A connection with etcd's gateway.
pub(super) struct Gateway {
    socket: BufReader<TcpStream>,
}

impl Gateway {
    pub(super) fn connect(address: &str) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self { socket: BufReader::new(socket) })
    }

    /// Makes `rounds` transactions with so many records in each; returns the time of each.
    pub(super) fn commit(&mut self, rounds: usize, records: usize) -> Result<Vec<Duration>> {
        let put = |nth: usize| Op::Put {
            key: format!("bare/{nth:016x}").into_bytes(),
            value: vec![0x5a; RECORD_BYTES],
            lease: LeaseId(0),
        };
        let txn = Txn { success: (0..records).map(put).collect(), ..Txn::default() };
        let body = json::txn(&txn).map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let mut request = format!(
            "POST {} HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            Call::Txn.path(),
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(&body);
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let begun = Instant::now();
            self.socket.get_mut().write_all(&request)?;
            self.answer()?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    fn answer(&mut self) -> Result<()> {
        let mut line = String::new();
        self.socket.read_line(&mut line)?;
        ensure!(line.starts_with("HTTP/1.1 200"), "etcd answers {line:?}");
        let mut length = None;
        let mut is_chunked = false;
        loop {
            line.clear();
            self.socket.read_line(&mut line)?;
            let head = line.trim().to_ascii_lowercase();
            if head.is_empty() {
                break;
            }
            is_chunked |= head == "transfer-encoding: chunked";
            if let Some(value) = head.strip_prefix("content-length:") {
                length = Some(value.trim().parse()?);
            }
        }
        if !is_chunked {
            return self.skip(length.context("an answer without a length")?);
        }
        loop {
            line.clear();
            self.socket.read_line(&mut line)?;
            let chunk = usize::from_str_radix(line.trim(), 16)?;
            self.skip(chunk + 2)?;
            if chunk == 0 {
                return Ok(());
            }
        }
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        let mut bytes = vec![0; count];
        Ok(self.socket.read_exact(&mut bytes)?)
    }
}

/// Writes blocks to the end of a new file, and waits for the disk after each; returns the time of each.
pub(super) fn syncs(scratch: &Path, rounds: usize) -> Result<Vec<Duration>> {
    let path = scratch.join("synced");
    let mut file = File::create(&path)?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begun = Instant::now();
        file.write_all(&[0x5a; BLOCK_BYTES])?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    std::fs::remove_file(path)?;
    Ok(times)
}
