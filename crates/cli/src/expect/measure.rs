//! Latency and bandwidth of a live server, by the client that would use it.

use std::time::Instant;

use frevo_client::OpenOptions;
use frevo_net::buffer::Buf;

use super::formula::Route;
use crate::exit::Failure;
use crate::remote::connection_options::Connection;
use crate::remote::location::Url;
use crate::remote::logon::failed;

/// Round trips that the latency is the median of.
const PINGS: usize = 200;
/// Bytes of the file that is made, read and removed.
const FILE: u64 = 64 << 20;
/// Seconds that are read one by one for each buffer size.
const SAMPLE: f64 = 0.5;

/// The results of a measurement.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Latency and bandwidth; what the network and what the server could do
    /// alone cannot be told apart from here.
    pub(crate) route: Route,
    /// Bytes a second one by one, for each buffer size.
    pub(crate) one_by_one: Vec<f64>,
    /// Bytes a second with many under way.
    pub(crate) pipelined: f64,
}

/// Makes a file in the share, reads it in all ways, and removes it.
pub(crate) async fn measure(
    connection: &Connection,
    url: &Url,
    buffers: &[u64],
) -> Result<Measured, Failure> {
    let share = connection.share(url).await?;
    let session = share.session();
    let mut trips = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        session.echo().await.map_err(failed)?;
        trips.push(began.elapsed().as_secs_f64());
    }
    trips.sort_by(f64::total_cmp);
    let latency = trips.get(PINGS / 2).copied().unwrap_or_default();

    let path = url.below(&format!(".frevo-expect-{}", std::process::id()));
    let options = OpenOptions::new().read(true).write(true).create(true).delete_on_close(true);
    let file = options.open(&share, &path).await.map_err(failed)?;
    // The data is random, because a server could compress zeros or store no data for them.
    let fill = |at: u64, count: usize, buf: &mut Buf| {
        let room = buf.append_zeroed(count);
        let mut state = at | 1;
        for word in room.chunks_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word.copy_from_slice(state.to_le_bytes().get(..word.len()).unwrap_or_default());
        }
        Ok(())
    };
    file.store(0, FILE, fill, |_: u64| true).await.map_err(failed)?;
    let mut one_by_one = Vec::new();
    for buffer in buffers {
        let count = u32::try_from(*buffer).unwrap_or(u32::MAX);
        let began = Instant::now();
        let mut bytes = 0;
        while began.elapsed().as_secs_f64() < SAMPLE {
            let piece = file.read_bytes(bytes % FILE, count).await.map_err(failed)?;
            bytes += piece.len().max(1) as u64;
        }
        one_by_one.push(bytes as f64 / began.elapsed().as_secs_f64());
    }
    // The file is read three times and the best rate counts, because only later reads find the
    // queue depth adjusted and the file in the server's memory.
    let mut pipelined = 0.0_f64;
    for _ in 0..3 {
        let began = Instant::now();
        let sink = |_: u64, _: Buf| std::future::ready(Ok(()));
        file.fetch(0, FILE, sink).await.map_err(failed)?;
        pipelined = pipelined.max(FILE as f64 / began.elapsed().as_secs_f64());
    }
    file.close().await.map_err(failed)?;
    let route =
        Route { name: url.server.to_string(), latency, network: pipelined, server: f64::INFINITY };
    Ok(Measured { route, one_by_one, pipelined })
}
