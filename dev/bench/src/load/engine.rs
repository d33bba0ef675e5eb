//! All connections of a row on one thread.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use tokio::task::JoinSet;

use super::bare;
use super::connection::Connection;
use super::listing::Listing;
use super::logon::{LoggedOn, log_on};
use super::office::Office;
use super::requests::Payload;
use super::shape::{Shape, Verb};
use super::talk::Talk;
use super::turn::{Load, Turn};
use crate::proc;
use crate::server::{Kind, Peer};
use crate::share::{BLOCK_LEN, READ_BLOCKS, WRITE_BLOCKS};

/// Digits of a latency that are kept.
const DIGITS: u8 = 2;
/// Logons at once.
const CONNECTING: usize = 16;
/// Most time for the replies to requests that are in flight at the end of a round.
const DRAIN: Duration = Duration::from_secs(20);
/// Longest wait for an event.
const WAIT: Duration = Duration::from_millis(20);
const EVENTS: usize = 256;

/// The measurement of one round.
pub(super) struct Measured {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) server_cpu_seconds: f64,
    pub(super) client_cpu_seconds: f64,
    pub(super) latency: Histogram<u64>,
    /// Requests of the connection with the fewest, as a part of the median.
    pub(super) worst_of_median: f64,
}

pub(super) struct Engine {
    row: Shape,
    connections: Vec<Box<dyn Load>>,
    poll: std::os::fd::OwnedFd,
    payload: Payload,
    void: Vec<u8>,
    is_copied: bool,
}

impl Engine {
    /// Connects to `peer`; with `is_copied` the data of replies is received, otherwise the kernel
    /// drops it.
    pub(super) async fn open(row: &Shape, peer: &Peer, is_copied: bool) -> Result<Self> {
        let payload = Payload::new(row.payload_bytes(), &peer.label)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections: Vec<Box<dyn Load>> = Vec::with_capacity(row.connections);
        while connections.len() < row.connections {
            let mut batch = JoinSet::new();
            let have = connections.len();
            for n in have..row.connections.min(have + CONNECTING) {
                let (row, target, kind) = (*row, peer.target.clone(), peer.kind);
                batch.spawn(async move {
                    if kind == Kind::Bare {
                        return bare::connect(&row, &target);
                    }
                    log_on(&row, &target, n).await
                });
            }
            while let Some(on) = batch.join_next().await {
                let n = connections.len();
                let on = on?.with_context(|| format!("connection {n}"))?;
                let data = epoll::EventData::new_u64(n as u64);
                // Events are edge-triggered, so each turn must read until the socket is empty.
                let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
                epoll::add(&poll, &on.socket, data, flags)?;
                connections.push(load(on, row, &payload)?);
            }
        }
        let void = vec![0; row.payload_bytes().max(BLOCK_LEN) + BLOCK_LEN];
        Ok(Self { row: *row, connections, poll, payload, void, is_copied })
    }

    /// Runs one round, and waits for the replies to what is in flight then.
    pub(super) fn run(&mut self, server: u32, time: Duration) -> Result<Measured> {
        for connection in &mut self.connections {
            connection.reset(&self.payload)?;
        }
        let mut latency = Histogram::new(DIGITS).context("a histogram")?;
        let cpu = (proc::cpu_seconds(server), proc::own_cpu_seconds());
        let start = Instant::now();
        let mut waited = Duration::ZERO;
        let mut ready: Vec<usize> = (0..self.connections.len()).collect();
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let now = start.elapsed();
            ensure!(now < time + DRAIN, "requests in flight were not answered");
            let is_over = now >= time;
            let mut turn = Turn {
                payload: &self.payload,
                void: &mut self.void,
                is_copied: self.is_copied,
                latency: &mut latency,
                is_over,
            };
            for at in ready.drain(..) {
                let connection = self.connections.get_mut(at).context("a connection")?;
                connection.turn(&mut turn)?;
            }
            if is_over && self.connections.iter().all(|c| c.is_idle()) {
                break;
            }
            events.clear();
            let timeout = Timespec { tv_sec: 0, tv_nsec: WAIT.as_nanos().try_into()? };
            match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e).context("waiting for events"),
            }
            for event in &events {
                ready.push(usize::try_from(event.data.u64())?);
            }
            // A connection that waits for the signatures of its next WRITEs gets no event, so idle
            // connections are looked at after each wait.
            if events.is_empty() {
                waited += WAIT;
                ensure!(waited < DRAIN, "the server answers nothing");
                if self.connections.iter().all(|c| c.is_idle()) {
                    break;
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let now = (proc::cpu_seconds(server), proc::own_cpu_seconds());
        let mut done: Vec<u64> = self.connections.iter().map(|c| c.done()).collect();
        done.sort_unstable();
        let requests: u64 = done.iter().sum();
        let median = done.get(done.len() / 2).copied().unwrap_or(0).max(1);
        ensure!(requests > 0, "no request was answered");
        Ok(Measured {
            requests,
            bytes: requests * self.row.payload_bytes() as u64,
            seconds,
            server_cpu_seconds: now.0 - cpu.0,
            client_cpu_seconds: now.1 - cpu.1,
            latency,
            worst_of_median: done.first().copied().unwrap_or(0) as f64 / median as f64,
        })
    }

    /// Checks what the rounds have read and written.
    pub(super) fn verify(&mut self, dir: &Path) -> Result<()> {
        for connection in &mut self.connections {
            connection.verify(dir, &self.payload)?;
        }
        Ok(())
    }
}

fn load(on: LoggedOn, row: &Shape, payload: &Payload) -> Result<Box<dyn Load>> {
    let folder = on.file_id;
    Ok(match row.verb {
        Verb::Read => Box::new(Connection::new(on, row, READ_BLOCKS * BLOCK_LEN as u64, payload)?),
        Verb::Write => {
            Box::new(Connection::new(on, row, WRITE_BLOCKS * BLOCK_LEN as u64, payload)?)
        }
        Verb::List(_) => {
            let listing = Listing::new(folder, row.bytes as u64);
            Box::new(Talk::new(on, row, Box::new(listing))?)
        }
        Verb::Office => {
            let office = Office::new(on.number, folder);
            Box::new(Talk::new(on, row, Box::new(office))?)
        }
    })
}
