//! `frevo bench`: how fast a share is.

mod content;
mod measure;
mod plot;
mod report;
mod scratch;
mod workload;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueHint};
use frevo_client::Share;
use indicatif::ProgressBar;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::console::tell;
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;
use crate::remote::channels;
use crate::remote::connection_options::Connection;
use crate::remote::location::Url;
use crate::remote::logon::{failed, log_off};
use crate::remote::output::{human, line, parse_size, unwritten};
use content::{Content, PAGE};
use measure::{Measured, Run};
use scratch::Scratch;
use workload::{Client, Sizes, Test};

/// Largest `--block`, bytes; no server takes more at a time.
const BLOCK_MAX: u64 = 8 << 20;
/// Time for the requests under way to end after an interruption.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// Time for the removal of what was made.
const REMOVAL: Duration = Duration::from_secs(60);

/// `frevo bench`
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Share, or a directory in it; the files are made in a new directory there
    url: Url,

    /// Tests to run [default: all]
    #[arg(long, value_name = "TEST", value_delimiter = ',')]
    only: Vec<Test>,

    /// Time of each test, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = parse_time)]
    time: f64,

    /// Clients at the same time, each with a session and files of its own, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    clients: u16,

    /// Requests of each client at the same time, 1 to 256 [default: read and write
    /// 4, random-read and random-write 16, the others 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    depth: Option<u16>,

    /// Bytes of one request of read and write, if the server takes so many (k, M): 512, 1k, 2k or a
    /// multiple of 4k up to 8M
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_block)]
    block: u32,

    /// Size of the large files of all clients together (bytes; k, M, G)
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    size: u64,

    /// Number of files that all clients create together, at most 1,000,000
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files: u32,

    /// Write a diagram of the latencies to this SVG file, which must not exist yet
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    plot: Option<PathBuf>,

    #[command(flatten)]
    connection: Connection,
}

fn parse_time(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| String::from("write a number of seconds from 0.1 to 3600"))
}

fn parse_block(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?;
    let is_part = matches!(bytes, 512 | 1024 | 2048);
    let is_whole = (PAGE..=BLOCK_MAX).contains(&bytes) && bytes.is_multiple_of(PAGE);
    let bytes = u32::try_from(bytes).ok().filter(|_| is_part || is_whole);
    bytes.ok_or_else(|| String::from("write 512, 1k, 2k or a multiple of 4k up to 8M"))
}

/// A run, as the arguments and the server determine it.
#[derive(Debug)]
struct Plan {
    tests: Vec<Test>,
    clients: usize,
    sizes: Sizes,
}

impl Plan {
    fn new(bench: &Bench, share: &Share) -> Self {
        use clap::ValueEnum;
        let mut tests = bench.only.clone();
        if tests.is_empty() {
            tests.extend(Test::value_variants());
        }
        tests.sort_unstable();
        tests.dedup();
        let clients = u64::from(bench.clients);
        let most = share.session().info().map(|info| info.max_read.min(info.max_write));
        let most = most.map_or(bench.block, |most| (most / PAGE as u32).max(1) * PAGE as u32);
        let block = bench.block.min(most);
        // The size is rounded down to whole requests and whole pages.
        let unit = u64::from(block).max(PAGE);
        let data = (bench.size / clients / unit).max(1) * unit;
        let files = u64::from(bench.files).div_ceil(clients);
        Self { tests, clients: bench.clients.into(), sizes: Sizes { data, block, files } }
    }
}

/// The signals that end the measurement: Ctrl-C and SIGTERM.
struct Interrupts {
    ctrl_c: Signal,
    terminate: Signal,
}

impl Interrupts {
    fn new() -> Result<Self, Failure> {
        let watch = |kind| signal(kind).map_err(Failure::failed("cannot wait for signals"));
        let ctrl_c = watch(SignalKind::interrupt())?;
        Ok(Self { ctrl_c, terminate: watch(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.ctrl_c.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted")
}

pub(crate) fn run(bench: &Bench) -> Done {
    let plot = bench.plot.as_deref().map(new_file).transpose()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(bench.clients.into());
    let mut runtime = if threads > 1 {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    if threads > 1 {
        runtime.worker_threads(threads);
    }
    let runtime = runtime
        .enable_all()
        .max_blocking_threads(cores)
        .build()
        .map_err(Failure::failed("cannot start the event loop"))?;
    let done = runtime.block_on(async {
        let mut interrupts = Interrupts::new()?;
        let done = tokio::select! {
            done = measure_all(bench, &mut interrupts) => done,
            never = channels::follow() => match never {},
        };
        channels::tell_sums();
        // Background tasks close the dropped files. Yielding lets them send their requests before
        // the logoff.
        tokio::task::yield_now().await;
        let _ = tokio::time::timeout(LAST_REQUESTS, log_off()).await;
        done
    });
    runtime.shutdown_timeout(Duration::from_millis(200));
    let (title, results) = done.inspect_err(|_| {
        if let Some(path) = bench.plot.as_deref() {
            // This command created the file just now and has written nothing, so removing it loses
            // nothing.
            let _ = std::fs::remove_file(path);
        }
    })?;
    if let (Some(mut file), Some(path)) = (plot, &bench.plot) {
        file.write_all(plot::picture(&title, &results).as_bytes())
            .map_err(Failure::failed(format!("cannot write {}", path.display())))?;
    }
    unwritten()
}

/// A file that did not exist before.
fn new_file(path: &Path) -> Result<std::fs::File, Failure> {
    let failed = Failure::failed(format!("cannot create {}", path.display()));
    std::fs::File::options().write(true).create_new(true).open(path).map_err(failed)
}

/// Runs the tests, and removes what they made. Returns a title and the results.
async fn measure_all(
    bench: &Bench,
    interrupts: &mut Interrupts,
) -> Result<(String, Vec<Measured>), Failure> {
    let connect = async {
        let (share, url) = bench.connection.reach_alone(&bench.url).await?;
        let scratch = Scratch::create(&share, &url.path).await?;
        Ok::<_, Failure>((share, scratch))
    };
    let (share, scratch) = tokio::select! {
        connected = connect => connected?,
        () = interrupts.next() => return Err(interrupted()),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let done = {
        let work = measure_in(bench, &share, &scratch, &stop);
        let mut work = std::pin::pin!(work);
        tokio::select! {
            done = &mut work => done,
            () = interrupts.next() => {
                stop.store(true, Ordering::Relaxed);
                // Waits until the running requests have ended, so that none of them creates a file
                // after the files were removed.
                let _ = tokio::time::timeout(LAST_REQUESTS, work).await;
                Err(interrupted())
            }
        }
    };
    let removed = tokio::select! {
        removed = tokio::time::timeout(REMOVAL, scratch.remove()) => match removed {
            Ok(removed) => removed.map_err(|error| error.to_string()),
            Err(_) => Err(String::from("the server took too long")),
        },
        () = interrupts.next() => Err(String::from("interrupted")),
    };
    if let Err(why) = removed {
        let url = scratch.url();
        let text = format!("{url} could not be removed ({why}); run frevo rm -r {url}");
        if done.is_ok() {
            return Err(Failure::new(Exit::Failed, text).of("remove", url));
        }
        tell(text);
    }
    done
}

/// Makes the files and runs the tests.
async fn measure_in(
    bench: &Bench,
    share: &Share,
    scratch: &Scratch,
    stop: &Arc<AtomicBool>,
) -> Result<(String, Vec<Measured>), Failure> {
    let plan = Plan::new(bench, share);
    let is_quiet = bench.connection.json;
    let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    has_room(share, scratch, &plan).await?;
    let clients = clients(bench, share, scratch, &plan, stop, &bar).await?;
    let head = report::head(share, &plan);
    bar.suspend(|| {
        if is_quiet {
            line(report::head_object(share, &plan))
        } else {
            line(&head) && line(report::columns())
        }
    });
    let mut results = Vec::with_capacity(plan.tests.len());
    for test in &plan.tests {
        let run = Run {
            clients: &clients,
            depth: bench.depth.map_or(test.depth(), usize::from),
            time: Duration::from_secs_f64(bench.time),
            stop,
        };
        let name = test.name();
        let measured = measure::run(*test, &run, |counts, elapsed| {
            let seconds = elapsed.as_secs_f64();
            let done = counts.in_unit(test.unit()) as f64;
            let rate = report::rate_in(test.unit(), done / seconds.max(0.001));
            bar.set_message(format!("{name}: {rate}, {seconds:.0} s of {}", bench.time));
            bar.tick();
        });
        let measured = measured.await.map_err(failed).inspect_err(|_| bar.finish_and_clear())?;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        bar.suspend(|| {
            if is_quiet { line(report::object(&measured)) } else { line(report::row(&measured)) }
        });
        results.push(measured);
    }
    bar.finish_and_clear();
    Ok((head, results))
}

/// Fails if the volume has no space for the large files.
async fn has_room(share: &Share, scratch: &Scratch, plan: &Plan) -> Done {
    let needed = plan.sizes.data.saturating_mul(plan.clients as u64);
    // Some servers do not report their free space. Then the measurement begins without this check.
    let Ok(space) = share.disk_space(&scratch.path).await else { return Ok(()) };
    let free = space.available_bytes();
    if !plan.tests.iter().any(|test| test.uses_data()) || needed < free {
        return Ok(());
    }
    let text = format!(
        "the share has {} free, and the test needs {}; name another --size",
        human(free),
        human(needed)
    );
    Err(Failure::new(Exit::Failed, text).of("measure", scratch.url()))
}

/// The clients, with the files that the tests need.
async fn clients(
    bench: &Bench,
    share: &Share,
    scratch: &Scratch,
    plan: &Plan,
    stop: &Arc<AtomicBool>,
    bar: &ProgressBar,
) -> Result<Vec<Arc<Client>>, Failure> {
    let content = Arc::new(Content::new());
    let mut clients = Vec::with_capacity(plan.clients);
    for number in 0..plan.clients {
        let share = match number {
            0 => share.clone(),
            _ => bench.connection.reach_alone(&bench.url).await?.0,
        };
        let directory = format!("{}/client-{number}", scratch.path);
        share.create_dir(&directory).await.map_err(failed)?;
        let mut client = Client::new(share, directory, &content, plan.sizes);
        let all = counted(plan.clients, "client");
        bar.set_message(format!("making the files of client {} of {all}", number + 1));
        bar.tick();
        let prepared = client.prepare(&plan.tests, |_| {
            bar.tick();
            !stop.load(Ordering::Relaxed)
        });
        prepared.await.map_err(failed).inspect_err(|_| bar.finish_and_clear())?;
        clients.push(Arc::new(client));
    }
    Ok(clients)
}
