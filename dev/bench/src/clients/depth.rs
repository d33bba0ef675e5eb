//! Random reads of 4 KiB through the library, single and concurrent.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use frevo_client::{Client, Credentials, File, ServerName};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::relay::Relay;
use crate::server::Target;

/// Bytes of one read.
const READ_LEN: u32 = 4096;

/// Reads from `name` with `depth` concurrent requests for `time`; returns the rate per second.
/// `latency` is added to each round trip.
pub(super) async fn reads_a_second(
    target: &Target,
    name: &str,
    depth: usize,
    latency: Duration,
    time: Duration,
) -> Result<f64> {
    let port = if latency.is_zero() {
        port_of(&target.addr)?
    } else {
        Relay::start(target.addr.clone(), latency)?.port
    };
    let server = ServerName::new("127.0.0.1").at_port(port);
    let user = Credentials::new(&target.user, &target.password);
    let session = Client::default().connect(server, user).await?;
    let share = session.share("share").await?;
    let file = share.open(name).await?;
    let blocks = file.metadata_at_open().len() / u64::from(READ_LEN);
    ensure!(blocks > 0, "{name} is empty");
    run(&file, depth, blocks, time / 5).await?;
    let rate = run(&file, depth, blocks, time).await?;
    file.close().await?;
    session.log_off().await;
    Ok(rate)
}

fn port_of(address: &str) -> Result<u16> {
    Ok(address.rsplit_once(':').context("the address has no port")?.1.parse()?)
}

async fn run(file: &File, depth: usize, blocks: u64, time: Duration) -> Result<f64> {
    let start = Instant::now();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut read = || {
        // xorshift64 makes the random numbers, because each block need only be equally likely.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        file.read_bytes(random % blocks * u64::from(READ_LEN), READ_LEN)
    };
    let mut under_way: FuturesUnordered<_> = (0..depth).map(|_| read()).collect();
    let mut done = 0_u64;
    while let Some(bytes) = under_way.next().await {
        ensure!(bytes?.len() == READ_LEN as usize, "READ returned too few bytes");
        done += 1;
        if start.elapsed() < time {
            under_way.push(read());
        }
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
